#include "pipeline/engine/parameter_update.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/adam.h"
#include "kernels/muon.h"
#include "kernels/orthogonalize.h"
#include "kernels/sum_of_squares.h"
#include "runtime/check.h"

namespace hadal {
namespace {

constexpr int64_t kBlock = 4096;  // elements measured at a time: they stay in the first cache level
constexpr int64_t kMostBlocks = (kSliceElements + kBlock - 1) / kBlock;  // of a slice

// What of the optimizer depends on the parameter.
struct Group {
  double rate_factor = 1, epsilon = 0, weight_decay = 0;
  bool muon = false;    // else Adam
  bool frozen = false;  // not updated
  bool operator==(const Group&) const = default;
};

// By how much the rate falls where a model is wider than its base (muP; derivation: layers/method_presets.md).
double RateFactor(const ParameterRecord& parameter, const SublayerRecord& sublayer, double multiplier) {
  if (sublayer.layer >= 0 && !parameter.is_vector()) return 1 / multiplier;
  const bool closes_decoder =
      sublayer.stack == Stack::kDecoder &&
      (parameter.role == ParameterRole::kClosingNormScale || parameter.role == ParameterRole::kClosingNormShift);
  const bool of_embedding =
      parameter.role == ParameterRole::kEmbedding || parameter.role == ParameterRole::kPositionTable;
  return closes_decoder || of_embedding ? 1 / std::sqrt(multiplier) : 1;
}

// The factor of the rate of a matrix that Muon updates.
double MuonRateFactor(const ParameterRecord& matrix, const MuonOptions& muon, double multiplier) {
  const auto rows = static_cast<double>(matrix.rows), columns = static_cast<double>(matrix.columns);
  const double scale = muon.scale == MuonScale::kOriginal ? std::sqrt(std::max(1.0, rows / columns))
                                                          : 0.2 * std::sqrt(std::max(rows, columns) / multiplier);
  return muon.rate_factor * scale;
}

Group GroupOf(const ModelPlan& plan, int32_t p, const OptimizerOptions& options) {
  const ParameterRecord& parameter = plan.parameters[p];
  const SublayerRecord& sublayer = plan.sublayers[parameter.sublayer];
  const StackMethod& method = sublayer.stack == Stack::kEncoder ? plan.options.encoder : plan.options.decoder;
  const bool hidden = sublayer.layer >= 0 && !parameter.is_vector();
  const double multiplier = plan.options.width_multiplier();
  if (plan.uses_muon(p)) {
    const double rate = MuonRateFactor(parameter, options.muon, multiplier);
    return {.rate_factor = rate,
            .weight_decay = options.weight_decay * options.muon.rate_factor / rate,
            .muon = true,
            .frozen = plan.is_frozen(p)};
  }
  const double rate = RateFactor(parameter, sublayer, multiplier);
  // Floats below the normal ones count as 0: of a gradient below √(least normal / (1 − beta2)) the square does, and the
  // gradient does not.
  constexpr double kLeastEpsilon = 1e-17;
  const double epsilon = hidden ? options.epsilon * method.adam_epsilon_factor / multiplier : options.epsilon;
  // Decay times rate is the same in every group.
  return {.rate_factor = rate,
          .epsilon = std::max(epsilon, kLeastEpsilon),
          .weight_decay = options.decays_vectors || !parameter.is_vector() ? options.weight_decay / rate : 0,
          .frozen = plan.is_frozen(p)};
}

struct Run {
  Vector parameter, gradient, first_moment, second_moment;
  VectorOf<BFloat16> rounded;  // or empty
  Group group;

  // Takes `next` in where it begins just behind this run; false: it does not.
  bool Join(const Run& next) {
    const int64_t n = parameter.size;
    const bool follows = next.group == group && next.parameter.data == parameter.data + n &&
                         next.gradient.data == gradient.data + n && next.first_moment.data == first_moment.data + n &&
                         next.second_moment.data == second_moment.data + second_moment.size;
    if (!follows) return false;
    for (Vector* v : {&parameter, &gradient, &first_moment}) v->size += next.parameter.size;
    second_moment.size += next.second_moment.size;  // none of Muon's
    rounded.size += next.rounded.size;              // lies as the parameter does
    return true;
  }
};

Run RunOf(const ModelPlan& plan, const StateSlice& slice, const ParameterUpdate& update) {
  return {slice.weight,        slice.gradient, slice.first_moment,
          slice.second_moment, slice.rounded,  GroupOf(plan, slice.parameter, update.optimizer)};
}

double GradientScale(const ParameterUpdate& update) {
  const double clip = update.optimizer.clip_norm;
  return clip > 0 && update.gradient_norm > clip ? clip / update.gradient_norm : 1.0;
}

void Apply(const Stream& stream, const Run& run, const ParameterUpdate& update) {
  if (run.group.frozen) return;
  const OptimizerOptions& options = update.optimizer;
  const double rate = update.learning_rate * run.group.rate_factor;
  if (run.group.muon) {
    return MuonStep(stream, {.parameter = run.parameter,
                             .direction = run.gradient,
                             .rounded = run.rounded,
                             .decay = static_cast<float>(rate * run.group.weight_decay),
                             .step_size = static_cast<float>(rate)});
  }
  AdamStep(stream, {.parameter = run.parameter,
                    .gradient = run.gradient,
                    .first_moment = run.first_moment,
                    .second_moment = run.second_moment,
                    .rounded = run.rounded,
                    .learning_rate = rate,
                    .beta1 = options.beta1,
                    .beta2 = options.beta2,
                    .epsilon = run.group.epsilon,
                    .weight_decay = run.group.weight_decay,
                    .gradient_scale = GradientScale(update),
                    .update = update.update});
}

// Puts the directions of Muon's steps where the gradients of its matrices were. One sum of squares for all of them, for
// which a device waits once.
void FindDirections(const Stream& stream, const ModelPlan& plan, std::span<const StateSlice> slices,
                    const ParameterUpdate& update) {
  const MuonOptions& muon = update.optimizer.muon;
  const auto moves = [&](const StateSlice& slice) {
    return plan.uses_muon(slice.parameter) && !plan.is_frozen(slice.parameter);
  };
  if (std::none_of(slices.begin(), slices.end(), moves)) return;
  std::vector<const StateSlice*> of_matrices;
  std::vector<SquaresSlice> directions;  // [of_matrices]
  of_matrices.reserve(slices.size());
  directions.reserve(slices.size());
  int64_t elements = 0;
  for (const StateSlice& slice : slices) {
    if (!moves(slice)) continue;
    MuonMomentum(stream, {.gradient = slice.gradient,
                          .momentum = slice.first_moment,
                          .decay = muon.momentum,
                          .nesterov = muon.nesterov,
                          .gradient_scale = GradientScale(update)});
    of_matrices.push_back(&slice);
    directions.push_back({slice.gradient, elements});
    elements += slice.elements;
  }
  std::vector<double> squares(directions.size());
  SumsOfSquares(stream, {.slices = directions, .sums = squares});
  for (size_t i = 0; i < of_matrices.size();) {
    const StateSlice& first = *of_matrices[i];
    const ParameterRecord& matrix = plan.parameters[first.parameter];
    HADAL_CHECK_EQ(first.slice, 0);
    double sum = 0;
    for (int64_t slice = 0; slice < SliceCount(matrix); ++slice) sum += squares[i++];
    Orthogonalize(stream, {.u = {first.gradient.data, matrix.rows, matrix.columns},
                           .squares = sum,
                           .iteration = muon.iteration,
                           .storage = plan.read_storage(first.parameter),
                           .workspace = update.workspace});
  }
}

Vector PartOf(Vector values, int64_t first, int64_t size) {
  return values.empty() ? values : Vector(values.data + first, size);
}

Run Part(const Run& run, int64_t first, int64_t size) {
  return {PartOf(run.parameter, first, size),
          PartOf(run.gradient, first, size),
          PartOf(run.first_moment, first, size),
          PartOf(run.second_moment, first, size),
          {},
          run.group};
}

UpdateSize ApplyAndMeasureBlock(const Run& block, const ParameterUpdate& update) {
  std::array<float, kBlock> change;  // first the old weights
  const ConstVector weights = block.parameter;
  std::copy_n(weights.data, weights.size, change.begin());
  Apply(Stream::Cpu(1), block, update);
  for (int64_t i = 0; i < weights.size; ++i) change[i] = weights[i] - change[i];
  return {SumOfSquares({change.data(), weights.size}), SumOfSquares(weights)};
}

// Weights before and after are copied to the host, which is slow and rare.
UpdateSize ApplyAndMeasureOnDevice(const Stream& stream, const Run& slice, const ParameterUpdate& update) {
  const int64_t elements = slice.parameter.size, bytes = elements * int64_t{sizeof(float)};
  std::vector<float> change(elements), weights(elements);
  stream.ToHost(change.data(), slice.parameter.data, bytes);
  Apply(stream, slice, update);
  stream.ToHost(weights.data(), slice.parameter.data, bytes);
  for (int64_t i = 0; i < elements; ++i) change[i] = weights[i] - change[i];
  UpdateSize size;
  for (int64_t first = 0; first < elements; first += kBlock) {
    const int64_t count = std::min(kBlock, elements - first);
    size.change_squares += SumOfSquares({change.data() + first, count});
    size.weight_squares += SumOfSquares({weights.data() + first, count});
  }
  return size;
}

UpdateSize ApplyAndMeasure(const Stream& stream, const Run& slice, const ParameterUpdate& update) {
  if (stream.device() != nullptr) return ApplyAndMeasureOnDevice(stream, slice, update);
  std::array<UpdateSize, kMostBlocks> blocks;
  const int64_t elements = slice.parameter.size;
  stream.ForRanges(elements, kBlock, [&](int64_t begin, int64_t end) {
    for (int64_t first = begin; first < end; first += kBlock) {
      blocks[first / kBlock] = ApplyAndMeasureBlock(Part(slice, first, std::min(kBlock, end - first)), update);
    }
  });
  UpdateSize size;
  for (int64_t b = 0; b * kBlock < elements; ++b) {
    size.change_squares += blocks[b].change_squares;
    size.weight_squares += blocks[b].weight_squares;
  }
  return size;
}

void UpdateAndMeasure(const Stream& stream, const ModelPlan& plan, std::span<const StateSlice> slices,
                      const ParameterUpdate& update) {
  update.sizes->clear();
  for (const StateSlice& slice : slices) {
    update.sizes->push_back(ApplyAndMeasure(stream, RunOf(plan, slice, update), update));
  }
}

}  // namespace

void UpdateParameters(const Stream& stream, const ModelPlan& plan, std::span<const StateSlice> slices,
                      const ParameterUpdate& update) {
  FindDirections(stream, plan, slices, update);
  if (update.sizes != nullptr) return UpdateAndMeasure(stream, plan, slices, update);
  for (const bool rounded : {true, false}) {  // as they lie
    Run run;
    for (const StateSlice& slice : slices) {
      if (slice.is_rounded() != rounded) continue;
      const Run next = RunOf(plan, slice, update);
      if (!run.parameter.empty() && run.Join(next)) continue;
      if (!run.parameter.empty()) Apply(stream, run, update);
      run = next;
    }
    if (!run.parameter.empty()) Apply(stream, run, update);
  }
}

}  // namespace hadal
