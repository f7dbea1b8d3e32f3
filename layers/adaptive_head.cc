#include "layers/adaptive_head.h"

#include <algorithm>

#include "kernels/cross_entropy.h"
#include "kernels/linear.h"
#include "runtime/check.h"

namespace hadal {
namespace {

// values[i] ·= the mask's factor of row rows[i], or i where rows is empty, of a tensor of `width` columns.
void ApplyDropout(const Stream& stream, const Dropout& dropout, ConstTokens rows, int64_t width, Matrix values) {
  if (!dropout.active()) return;
  stream.ForRanges(values.rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = rows.empty() ? i : rows[i];
      for (int64_t c = 0; c < values.columns; ++c) values.row(i)[c] *= DropoutFactor(dropout, row * width + c);
    }
  });
}

}  // namespace

AdaptiveSoftmax::AdaptiveSoftmax(const ModelPlan& plan)
    : sublayer_(plan.output_head()),
      table_(plan.sublayers[sublayer_].table),
      classes_(plan.ParameterOf(sublayer_, ParameterRole::kClusterWeight)),
      bands_(AdaptiveBands(plan.options)) {}

ConstMatrix AdaptiveSoftmax::Words(const ParameterStore& parameters) const {
  return parameters.ProductWeight(table_).floats().Rows(0, bands_[0].words);
}

ConstMatrix AdaptiveSoftmax::Classes(const ParameterStore& parameters) const {
  if (tied()) return parameters.ProductWeight(classes_).floats();
  return parameters.ProductWeight(table_).floats().Rows(bands_[0].words, clusters());
}

Matrix AdaptiveSoftmax::WordsGradient(const ParameterStore& parameters) const {
  return parameters.TableGradient(sublayer_).Rows(0, bands_[0].words);
}

Matrix AdaptiveSoftmax::ClassesGradient(const ParameterStore& parameters) const {
  return tied() ? parameters.Gradient(classes_) : parameters.TableGradient(sublayer_).Rows(bands_[0].words, clusters());
}

void AdaptiveSoftmax::Project(const Stream& stream, const ParameterStore& parameters, const AdaptiveBand& band,
                              ConstMatrix x, Matrix h) const {
  const ConstAnyMatrix projection = parameters.ProductWeight(Projection(band));
  if (!tied()) return LinearForward(stream, {.x = x, .weight = projection, .y = h});
  LinearBackwardInput(stream, {.dy = x, .weight = projection, .dx = h});
}

AdaptiveHead::AdaptiveHead(const ModelPlan& plan, const ActivationCapacity& capacity, Purpose purpose,
                           ArenaLayout& layout)
    : OutputHead(plan, capacity, purpose),
      softmax_(plan),
      dropout_(plan.options.adaptive_dropout),
      width_(plan.options.d_model),
      training_(purpose == Purpose::kTraining) {
  const int64_t hidden = softmax_.bands()[1].width;
  input_ = layout.Reserve<float>("workspace", kAdaptiveRows * width_);
  hidden_ = layout.Reserve<float>("workspace", (training_ ? 2 : 1) * kAdaptiveRows * hidden);
  losses_ = layout.Reserve<float>("workspace", 2 * kAdaptiveRows);
  tokens_ = layout.Reserve<int32_t>("workspace", 2 * kAdaptiveRows);
}

void AdaptiveHead::Forward(const SublayerContext& context, const PartTensors& tensors) const {
  HADAL_CHECK(context.stream.device() == nullptr);
  context.Observe({.tensor = DepthTensor::kModelOutput, .sublayer = sublayer_, .values = tensors.x});
  const ConstMatrix x = tensors.x.floats();
  const bool training = context.scalars.training;
  HADAL_CHECK(training_ || !training);
  const Matrix d_x(reinterpret_cast<float*>(tensors.saved), x.rows, x.columns);
  const int64_t block = std::min(kAdaptiveRows, context.workspace.logit_rows());  // fewer for wide bands
  for (int64_t first = 0; first < x.rows; first += block) {
    ForwardHead(context, x, first, std::min(block, x.rows - first), d_x);
  }
  const ConstTokens targets(context.batch.target.data(), x.rows);
  for (const AdaptiveBand& band : softmax_.bands()) {
    if (band.index == 0) continue;
    ForBandRows(targets, band, {tokens_, block}, [&](ConstTokens rows) { ForwardBand(context, band, x, rows, d_x); });
  }
  if (training) {
    ApplyDropout(context.stream, context.MakeDropout(dropout_, sublayer_, RandomSite::kResidual), {}, width_, d_x);
  }
}

void AdaptiveHead::ForwardHead(const SublayerContext& context, ConstMatrix x, int64_t first, int64_t rows,
                               Matrix d_x) const {
  const Stream& stream = context.stream;
  const ParameterStore& parameters = context.parameters;
  const int64_t words = softmax_.bands()[0].words, clusters = softmax_.clusters();
  const ConstMatrix word_table = softmax_.Words(parameters), class_table = softmax_.Classes(parameters);
  int32_t* const row_numbers = tokens_;
  int32_t* const targets = tokens_ + kAdaptiveRows;
  for (int64_t i = 0; i < rows; ++i) {
    const int32_t target = context.batch.target[first + i];
    row_numbers[i] = static_cast<int32_t>(first + i);
    targets[i] = target;
    for (const AdaptiveBand& band : softmax_.bands()) {
      if (band.index > 0 && band.Holds(target)) targets[i] = static_cast<int32_t>(words) + band.index - 1;
    }
  }
  ConstMatrix u = x.Rows(first, rows);
  const Dropout dropout = context.MakeDropout(dropout_, sublayer_, RandomSite::kResidual);
  if (dropout.active()) {
    const Matrix copy(input_, rows, width_);
    for (int64_t i = 0; i < rows; ++i) std::copy_n(u.row(i), width_, copy.row(i));
    ApplyDropout(stream, dropout, {row_numbers, rows}, width_, copy);
    u = copy;
  }
  const Matrix logits = context.workspace.logits(rows).floats().Columns(0, words + clusters);
  const Matrix of_words = logits.Columns(0, words), of_classes = logits.Columns(words, clusters);
  LinearForward(stream, {.x = u, .weight = word_table, .y = of_words});
  LinearForward(stream, {.x = u, .weight = class_table, .y = of_classes});
  CrossEntropy(stream, {.logits = logits,
                        .targets = {targets, rows},
                        .gradient_scale = context.scalars.training ? context.scalars.gradient_scale : 0,
                        .loss = {context.workspace.row_loss(x.rows).data + first, rows},
                        .nll = {context.workspace.row_nll(x.rows).data + first, rows}});
  if (!context.scalars.training) return;
  const Matrix d_u = d_x.Rows(first, rows);
  LinearBackwardInput(stream, {.dy = of_words, .weight = word_table, .dx = d_u});
  LinearBackwardInput(stream, {.dy = of_classes, .weight = class_table, .accumulate = true, .dx = d_u});
  LinearBackwardWeight(stream, {.dy = of_words, .x = u, .d_weight = softmax_.WordsGradient(parameters)});
  LinearBackwardWeight(stream, {.dy = of_classes, .x = u, .d_weight = softmax_.ClassesGradient(parameters)});
}

void AdaptiveHead::ForwardBand(const SublayerContext& context, const AdaptiveBand& band, ConstMatrix x,
                               ConstTokens rows, Matrix d_x) const {
  const Stream& stream = context.stream;
  const ParameterStore& parameters = context.parameters;
  const int64_t count = rows.size;
  const Matrix u(input_, count, width_), v(hidden_, count, band.width);
  int32_t* const targets = tokens_ + kAdaptiveRows;
  for (int64_t i = 0; i < count; ++i) {
    targets[i] = context.batch.target[rows[i]] - band.first;
    std::copy_n(x.row(rows[i]), width_, u.row(i));
  }
  const Dropout of_hidden = context.MakeDropout(dropout_, sublayer_, RandomSite::kActivation);
  ApplyDropout(stream, context.MakeDropout(dropout_, sublayer_, RandomSite::kResidual), rows, width_, u);
  softmax_.Project(stream, parameters, band, u, v);
  ApplyDropout(stream, of_hidden, rows, width_, v);
  const ConstAnyMatrix table = parameters.ProductWeight(softmax_.Table(band));
  const Matrix logits = context.workspace.logits(count).floats().Columns(0, band.words);
  LinearForward(stream, {.x = v, .weight = table, .y = logits});
  CrossEntropy(stream, {.logits = logits,
                        .targets = {targets, count},
                        .gradient_scale = context.scalars.training ? context.scalars.gradient_scale : 0,
                        .loss = {losses_, count},
                        .nll = {losses_ + kAdaptiveRows, count}});
  for (int64_t i = 0; i < count; ++i) {
    context.workspace.row_loss(x.rows)[rows[i]] += losses_[i];
    context.workspace.row_nll(x.rows)[rows[i]] += losses_[kAdaptiveRows + i];
  }
  if (!context.scalars.training) return;
  const Matrix d_v(hidden_ + kAdaptiveRows * softmax_.bands()[1].width, count, band.width);
  LinearBackwardInput(stream, {.dy = logits, .weight = table, .dx = d_v});
  LinearBackwardWeight(stream,
                       {.dy = logits, .x = v, .d_weight = parameters.TableGradient(sublayer_, softmax_.Table(band))});
  ApplyDropout(stream, of_hidden, rows, width_, d_v);
  const ConstAnyMatrix projection = parameters.ProductWeight(softmax_.Projection(band));
  const Matrix d_projection = parameters.TableGradient(sublayer_, softmax_.Projection(band));
  // The gradient of u replaces u.
  if (softmax_.tied()) {
    LinearBackwardWeight(stream, {.dy = u, .x = d_v, .d_weight = d_projection});
    LinearForward(stream, {.x = d_v, .weight = projection, .y = u});
  } else {
    LinearBackwardWeight(stream, {.dy = d_v, .x = u, .d_weight = d_projection});
    LinearBackwardInput(stream, {.dy = d_v, .weight = projection, .dx = u});
  }
  for (int64_t i = 0; i < count; ++i) {
    float* const d_row = d_x.row(rows[i]);
    for (int64_t c = 0; c < width_; ++c) d_row[c] += u.row(i)[c];
  }
}

AdaptiveLogProbabilities::AdaptiveLogProbabilities(const ModelPlan& plan, int64_t rows, ArenaLayout& layout)
    : softmax_(plan), rows_(rows) {
  classes_ = layout.Reserve<float>("decode workspace", rows * softmax_.clusters());
  hidden_ = layout.Reserve<float>("decode workspace", rows * softmax_.bands()[1].width);
  losses_ = layout.Reserve<float>("decode workspace", 2 * rows);
  zeros_ = layout.Reserve<int32_t>("decode workspace", rows);
}

void AdaptiveLogProbabilities::Normalize(const Stream& stream, Matrix z, Matrix added) const {
  std::fill_n(zeros_.data(), z.rows, 0);  // scratch
  const Vector nll(losses_ + z.rows, z.rows);
  CrossEntropy(stream, {.logits = z, .targets = {zeros_, z.rows}, .loss = {losses_, z.rows}, .nll = nll});
  stream.ForRanges(z.rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const float log_sum = nll[r] + z.row(r)[0];
      const float more = added.empty() ? 0 : added.row(r)[0];
      for (int64_t v = 0; v < z.columns; ++v) z.row(r)[v] = (z.row(r)[v] - log_sum) + more;
    }
  });
}

void AdaptiveLogProbabilities::Compute(const Stream& stream, const ParameterStore& parameters, ConstMatrix x,
                                       Matrix y) const {
  HADAL_CHECK_LE(x.rows, rows_);
  const int64_t rows = x.rows, words = softmax_.bands()[0].words;
  // The classes' columns lie where the second band will be.
  const Matrix head = y.Columns(0, softmax_.head_columns());
  LinearForward(stream, {.x = x, .weight = softmax_.Words(parameters), .y = head.Columns(0, words)});
  LinearForward(stream,
                {.x = x, .weight = softmax_.Classes(parameters), .y = head.Columns(words, softmax_.clusters())});
  Normalize(stream, head, {});
  const Matrix classes(classes_, rows, softmax_.clusters());
  for (int64_t r = 0; r < rows; ++r) std::copy_n(head.row(r) + words, classes.columns, classes.row(r));
  for (const AdaptiveBand& band : softmax_.bands()) {
    if (band.index == 0) continue;
    const Matrix hidden(hidden_, rows, band.width);
    softmax_.Project(stream, parameters, band, x, hidden);
    const Matrix z = y.Columns(band.first, band.words);
    LinearForward(stream, {.x = hidden, .weight = parameters.ProductWeight(softmax_.Table(band)), .y = z});
    Normalize(stream, z, classes.Columns(band.index - 1, 1));
  }
}

}  // namespace hadal
