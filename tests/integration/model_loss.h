// The loss of one training step of a whole model on one rank, as a function of its parameters.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "layers/model_plan.h"
#include "pipeline/engine/engine.h"
#include "runtime/comm/in_process_communicator.h"
#include "runtime/data/sampling_order.h"

namespace hadal::testing {

// Its parameters begin as a new model's, moved away from special values (moved_parameters.h). The step's sentences and
// random numbers depend on the options' vocabulary alone. Threads: one, which becomes a compute thread.
class ModelLoss {
 public:
  explicit ModelLoss(const ModelOptions& options);

  const ModelPlan& plan() const { return plan_; }
  // A token's; weights stay as they are.
  double operator()();
  // By parameter, where the optimizer reads them: tied tables' uses summed.
  std::vector<std::vector<float>> Gradients();
  Vector Weight(int32_t parameter) const { return parameters().WeightVector(parameter); }

 private:
  const ParameterStore& parameters() const { return engine_->stage().parameters(); }

  const ModelPlan plan_;
  const StepBatches batches_;
  const PipelineLayout pipeline_;
  InProcessWorld world_{1};
  std::unique_ptr<Engine> engine_;
};

}  // namespace hadal::testing
