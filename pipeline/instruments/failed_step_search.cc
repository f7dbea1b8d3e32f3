#include "pipeline/instruments/failed_step_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/sum_of_squares.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

constexpr double kLargeGrowth = 10;

const char* TensorText(DepthTensor tensor) {
  switch (tensor) {
    case DepthTensor::kNormInput:
      return "input of its LayerNorm";
    case DepthTensor::kHidden:
      return "hidden layer";
    case DepthTensor::kBranch:
      return "F(x)";
    case DepthTensor::kOutput:
      return "output";
    case DepthTensor::kSecondStream:
      return "second stream";
    case DepthTensor::kModelOutput:
      return "input";
    case DepthTensor::kOutputGradient:
      return "gradient of its output";
    case DepthTensor::kNormOutputGradient:
      return "gradient of its LayerNorm's output";
    case DepthTensor::kNormInputGradient:
      return "gradient of its LayerNorm's input";
    case DepthTensor::kBranchGradient:
      return "gradient of F(x)";
  }
  return "";
}

// A tensor, its place in the order of the search, and its size. The default comes after all others.
struct Sighting {
  int32_t micro_batch = std::numeric_limits<int32_t>::max();
  DepthTensor tensor = DepthTensor::kOutput;
  int32_t sublayer = 0;
  int32_t arrival = 0;  // among the tensors of this rank, hence of this sublayer
  double size = 0;      // root mean square; not finite if an element is not
  double growth = 0;    // of the residual stream in the sublayer, if this is its output: size / size before

  auto Key() const {
    const bool backward = IsBackward(tensor);
    return std::tuple(micro_batch, backward, backward ? -sublayer : sublayer, arrival);
  }
  bool exists() const { return micro_batch != std::numeric_limits<int32_t>::max(); }
  bool finite() const { return std::isfinite(size); }
};

double RootMeanSquare(const ConstMatrix& values) {
  double squares = 0;
  for (int64_t row = 0; row < values.rows; ++row) squares += SumOfSquares({values.row(row), values.columns});
  return std::sqrt(squares / static_cast<double>(std::max<int64_t>(1, values.rows * values.columns)));
}

class Sightings : public DepthObserver {
 public:
  void Observe(const Stream& stream, int32_t micro_batch, const DepthObservation& observation) override {
    Sighting sighting{.micro_batch = micro_batch,
                      .tensor = observation.tensor,
                      .sublayer = observation.sublayer,
                      .arrival = static_cast<int32_t>(all_.size()),
                      .size = RootMeanSquare(observation.values.floats()) / std::abs(observation.factor)};
    const ConstMatrix before = observation.before.floats();
    if (!before.empty()) sighting.growth = sighting.size / RootMeanSquare(before);
    all_.push_back(sighting);
  }
  const std::vector<Sighting>& all() const { return all_; }

 private:
  std::vector<Sighting> all_;
};

// Returns the one of all ranks' sightings of which `comes_before` every other.
template <typename Order>
absl::StatusOr<Sighting> FirstOfAllRanks(const Sighting& mine, Collectives& collectives, const Order& comes_before) {
  const double values[] = {static_cast<double>(mine.micro_batch),
                           static_cast<double>(mine.tensor),
                           static_cast<double>(mine.sublayer),
                           static_cast<double>(mine.arrival),
                           mine.size,
                           mine.growth};
  HADAL_ASSIGN_OR_RETURN(const std::vector<std::vector<double>> all,
                         collectives.AllGather(values, "search in a failed step"));
  Sighting first;
  for (const std::vector<double>& v : all) {
    const Sighting sighting{static_cast<int32_t>(v[0]),
                            static_cast<DepthTensor>(static_cast<int32_t>(v[1])),
                            static_cast<int32_t>(v[2]),
                            static_cast<int32_t>(v[3]),
                            v[4],
                            v[5]};
    if (sighting.exists() && (!first.exists() || comes_before(sighting, first))) first = sighting;
  }
  return first;
}

// Of this rank's sightings and then of all ranks', of those that `counts`.
template <typename Filter, typename Order>
absl::StatusOr<Sighting> Find(const std::vector<Sighting>& mine, Collectives& collectives, const Filter& counts,
                              const Order& comes_before) {
  Sighting first;
  for (const Sighting& sighting : mine) {
    if (counts(sighting) && (!first.exists() || comes_before(sighting, first))) first = sighting;
  }
  return FirstOfAllRanks(first, collectives, comes_before);
}

// Returns the first parameter with a weight that is not finite, or -1.
absl::StatusOr<int32_t> BadWeight(const Engine& engine, const Stream& stream, Collectives& collectives) {
  std::vector<SquaresSlice> slices;
  int64_t elements = 0;
  for (const StateSlice& slice : engine.state().owned()) {
    slices.push_back({slice.weight, elements});
    elements += slice.weight.size;
  }
  std::vector<double> sums(slices.size());
  SumsOfSquares(stream, {.slices = slices, .sums = sums});
  double first = -1;
  for (size_t i = sums.size(); i-- > 0;) {
    if (!std::isfinite(sums[i])) first = engine.state().owned()[i].parameter;
  }
  HADAL_ASSIGN_OR_RETURN(const std::vector<std::vector<double>> all,
                         collectives.AllGather(std::span(&first, 1), "search in a failed step"));
  double lowest = -1;
  for (const std::vector<double>& v : all) {
    if (v[0] >= 0 && (lowest < 0 || v[0] < lowest)) lowest = v[0];
  }
  return static_cast<int32_t>(lowest);
}

std::string PlaceText(const ModelPlan& plan, const Sighting& at) {
  return absl::StrCat(IsBackward(at.tensor) ? "backward, " : "forward, ", plan.SublayerName(at.sublayer), ", ",
                      TensorText(at.tensor));
}

// `first`: the first tensor that is not finite. `last`: the finite one in front of it, or in front of the loss.
std::string DescribeNonFinite(const ModelPlan& plan, const Sighting& first, const Sighting& last, bool behind_the_head,
                              const GlobalGradient& gradient) {
  std::string text = "first number that is not finite: ";
  if (behind_the_head) {
    absl::StrAppend(&text, "forward, output head, logits or loss");
  } else if (first.exists()) {
    absl::StrAppend(&text, PlaceText(plan, first));
  } else {
    const int32_t parameter = gradient.first_bad_parameter;
    absl::StrAppend(&text, "backward, ", plan.SublayerName(plan.parameters[parameter].sublayer), ", gradient of ",
                    plan.ParameterName(parameter), "; all tensors are finite");
  }
  if (first.exists()) absl::StrAppend(&text, " (micro-batch ", first.micro_batch, ")");
  if (last.exists()) {
    absl::StrAppendFormat(&text, "; last finite tensor: %s (root mean square %.3g)", PlaceText(plan, last), last.size);
  }
  return text;
}

std::string DescribeSpike(const ModelPlan& plan, const Sighting& most) {
  if (!(most.growth >= kLargeGrowth)) {
    return absl::StrFormat("all numbers are finite, and no sublayer multiplies the residual stream by %.0f or more",
                           kLargeGrowth);
  }
  return absl::StrFormat(
      "all numbers are finite; the residual stream grows most in %s (micro-batch %d): root mean square %.3g before it, "
      "%.3g after it",
      plan.SublayerName(most.sublayer), most.micro_batch, most.size / most.growth, most.size);
}

}  // namespace

absl::StatusOr<std::string> LocateFailure(Engine& engine, std::span<const PackedBatch> batches,
                                          const StepScalars& scalars, UpdateSettings update, Collectives& collectives) {
  update.apply = false;
  update.sizes = nullptr;
  Sightings seen;
  engine.Observe(&seen);
  const absl::StatusOr<StepResult> again = engine.TrainingStep(batches, scalars, update);
  engine.Observe(nullptr);
  HADAL_RETURN_IF_ERROR(again.status());
  const ModelPlan& plan = engine.stage().plan();
  const GlobalGradient& gradient = again->gradient;
  const auto by_place = [](const Sighting& a, const Sighting& b) { return a.Key() < b.Key(); };
  if (gradient.finite) {
    if (gradient.loss.MeanLoss() <= update.highest_loss) {
      return "computed again, the step is finite; suspect the machine (memory, processor), not the model";
    }
    const auto more = [&](const Sighting& a, const Sighting& b) {
      return a.growth != b.growth ? a.growth > b.growth : by_place(a, b);
    };
    HADAL_ASSIGN_OR_RETURN(const Sighting most,
                           Find(
                               seen.all(), collectives, [](const Sighting& s) { return s.growth > 0; }, more));
    return DescribeSpike(plan, most);
  }
  HADAL_ASSIGN_OR_RETURN(const Sighting first,
                         Find(
                             seen.all(), collectives, [](const Sighting& s) { return !s.finite(); }, by_place));
  // Logits belong to no sublayer of the depth: their trouble shows in the loss and in the first gradient.
  const bool behind_the_head =
      !std::isfinite(gradient.loss.loss) &&
      (!first.exists() || (IsBackward(first.tensor) && first.sublayer == plan.output_head() - 1));
  const auto in_front = [&](const Sighting& s) {
    return s.micro_batch == first.micro_batch && s.Key() < first.Key() && !(behind_the_head && IsBackward(s.tensor));
  };
  HADAL_ASSIGN_OR_RETURN(
      const Sighting last,
      Find(seen.all(), collectives, in_front, [&](const Sighting& a, const Sighting& b) { return by_place(b, a); }));
  std::string text = DescribeNonFinite(plan, first, last, behind_the_head, gradient);
  HADAL_ASSIGN_OR_RETURN(const int32_t weight, BadWeight(engine, engine.stage().stream(), collectives));
  if (weight >= 0) {
    absl::StrAppend(&text, "; the weights of ", plan.ParameterName(weight), " (",
                    plan.SublayerName(plan.parameters[weight].sublayer),
                    ") were not finite before the step: an update made them so");
  }
  return text;
}

}  // namespace hadal
