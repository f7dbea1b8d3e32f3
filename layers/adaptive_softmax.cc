#include "layers/adaptive_softmax.h"

#include <algorithm>

#include "kernels/cross_entropy.h"
#include "kernels/linear.h"
#include "runtime/check.h"

namespace hadal {

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

ConstMatrix AdaptiveSoftmax::Table(const ParameterStore& parameters, const AdaptiveBand& band) const {
  return parameters.ProductWeight(table_ + TableOfBand(band.index)).floats();
}

ConstMatrix AdaptiveSoftmax::Projection(const ParameterStore& parameters, const AdaptiveBand& band) const {
  return parameters.ProductWeight(table_ + ProjectionOfBand(band.index, static_cast<int32_t>(bands_.size()))).floats();
}

Matrix AdaptiveSoftmax::WordsGradient(const ParameterStore& parameters) const {
  return parameters.TableGradient(sublayer_).Rows(0, bands_[0].words);
}

Matrix AdaptiveSoftmax::ClassesGradient(const ParameterStore& parameters) const {
  return tied() ? parameters.Gradient(classes_) : parameters.TableGradient(sublayer_).Rows(bands_[0].words, clusters());
}

Matrix AdaptiveSoftmax::TableGradient(const ParameterStore& parameters, const AdaptiveBand& band) const {
  return parameters.TableGradient(sublayer_, table_ + TableOfBand(band.index));
}

Matrix AdaptiveSoftmax::ProjectionGradient(const ParameterStore& parameters, const AdaptiveBand& band) const {
  return parameters.TableGradient(sublayer_,
                                  table_ + ProjectionOfBand(band.index, static_cast<int32_t>(bands_.size())));
}

void AdaptiveSoftmax::Project(const Stream& stream, const ParameterStore& parameters, const AdaptiveBand& band,
                              ConstMatrix x, Matrix h) const {
  const ConstMatrix projection = Projection(parameters, band);
  if (!tied()) return LinearForward(stream, {.x = x, .weight = projection, .y = h});
  LinearBackwardInput(stream, {.dy = x, .weight = projection, .dx = h});
}

AdaptiveLogProbabilities::AdaptiveLogProbabilities(const ModelPlan& plan, int64_t rows, ArenaLayout& layout)
    : softmax_(plan), rows_(rows) {
  class_slice_ = layout.Reserve<float>("decode workspace", rows * softmax_.clusters());
  hidden_slice_ = layout.Reserve<float>("decode workspace", rows * softmax_.bands()[1].width);
  loss_slice_ = layout.Reserve<float>("decode workspace", 2 * rows);
  zero_slice_ = layout.Reserve<int32_t>("decode workspace", rows);
}

void AdaptiveLogProbabilities::Bind(const Arena& arena) {
  classes_ = arena.Get<float>(class_slice_);
  hidden_ = arena.Get<float>(hidden_slice_);
  losses_ = arena.Get<float>(loss_slice_);
  zeros_ = arena.Get<int32_t>(zero_slice_);
}

void AdaptiveLogProbabilities::Normalize(const Stream& stream, Matrix z, Matrix added) const {
  std::fill_n(zeros_, z.rows, 0);  // scratch
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
  // The classes' columns lie where the second band comes to lie.
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
    LinearForward(stream, {.x = hidden, .weight = softmax_.Table(parameters, band), .y = z});
    Normalize(stream, z, classes.Columns(band.index - 1, 1));
  }
}

}  // namespace hadal
