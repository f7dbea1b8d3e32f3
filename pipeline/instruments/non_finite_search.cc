#include "pipeline/instruments/non_finite_search.h"

#include <cmath>
#include <limits>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/sum_of_squares.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

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

// The place of a tensor in the order of the search.
struct Place {
  int32_t micro_batch = std::numeric_limits<int32_t>::max();
  DepthTensor tensor = DepthTensor::kOutput;
  int32_t sublayer = 0;

  // Tensors of one sublayer and direction are equal here: they come in order, and the first one stays.
  auto Key() const {
    const bool backward = IsBackward(tensor);
    return std::tuple(micro_batch, backward, backward ? -sublayer : sublayer);
  }
  bool found() const { return micro_batch != std::numeric_limits<int32_t>::max(); }
};

class FirstNonFinite : public DepthObserver {
 public:
  void Observe(const Stream& stream, int32_t micro_batch, const DepthObservation& observation) override {
    const Place place{micro_batch, observation.tensor, observation.sublayer};
    if (!(place.Key() < first_.Key())) return;
    const ConstMatrix values = observation.values.floats();
    for (int64_t row = 0; row < values.rows; ++row) {
      if (std::isfinite(SumOfSquares({values.row(row), values.columns}))) continue;
      first_ = place;
      return;
    }
  }
  const Place& first() const { return first_; }

 private:
  Place first_;
};

absl::StatusOr<Place> FirstOfAllRanks(const Place& mine, Collectives& collectives) {
  const double values[] = {static_cast<double>(mine.micro_batch), static_cast<double>(mine.tensor),
                           static_cast<double>(mine.sublayer)};
  HADAL_ASSIGN_OR_RETURN(const std::vector<std::vector<double>> all,
                         collectives.AllGather(values, "non-finite search"));
  Place first;
  for (const std::vector<double>& v : all) {
    const Place place{static_cast<int32_t>(v[0]), static_cast<DepthTensor>(static_cast<int32_t>(v[1])),
                      static_cast<int32_t>(v[2])};
    if (place.Key() < first.Key()) first = place;
  }
  return first;
}

std::string Describe(const ModelPlan& plan, const Place& first, const GlobalGradient& gradient) {
  const bool loss_is_finite = std::isfinite(gradient.loss.loss);
  // Logits belong to no sublayer of the depth: their trouble shows in the loss and in the first gradient.
  const bool only_behind_the_head =
      !first.found() || (IsBackward(first.tensor) && first.sublayer == plan.output_head() - 1);
  if (!loss_is_finite && only_behind_the_head) return "forward, output head, logits or loss";
  if (first.found()) {
    return absl::StrCat(IsBackward(first.tensor) ? "backward, " : "forward, ", plan.SublayerName(first.sublayer), ", ",
                        TensorText(first.tensor), " (micro-batch ", first.micro_batch, ")");
  }
  if (const int32_t parameter = gradient.first_bad_parameter; parameter >= 0) {
    return absl::StrCat("backward, ", plan.SublayerName(plan.parameters[parameter].sublayer), ", gradient of ",
                        plan.ParameterName(parameter));
  }
  return "none: computed again, the step is finite; suspect the machine (memory, processor), not the model";
}

}  // namespace

absl::StatusOr<std::string> LocateNonFinite(Engine& engine, std::span<const PackedBatch> batches,
                                            const StepScalars& scalars, UpdateSettings update,
                                            Collectives& collectives) {
  update.apply = false;
  update.sizes = nullptr;
  FirstNonFinite search;
  engine.Observe(&search);
  const absl::StatusOr<StepResult> again = engine.TrainingStep(batches, scalars, update);
  engine.Observe(nullptr);
  HADAL_RETURN_IF_ERROR(again.status());
  HADAL_ASSIGN_OR_RETURN(const Place first, FirstOfAllRanks(search.first(), collectives));
  return Describe(engine.stage().plan(), first, again->gradient);
}

}  // namespace hadal
