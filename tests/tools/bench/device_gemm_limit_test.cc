// The limit of a device runs what a training step has launched, all of it, and leaves training as it was.
#include "layers/parameter_store.h"
#include "tools/bench/bench_step.h"

#include <tuple>

#include "gtest/gtest.h"
#include "pipeline/engine/engine.h"
#include "pipeline/exchange/parameter_broadcast.h"
#include "runtime/comm/in_process_communicator.h"
#include "runtime/compute_thread.h"
#include "runtime/status_macros.h"
#include "tests/support/emulated_device.h"
#include "tests/support/small_model.h"
#include "tools/bench/bench_step_report.h"
#include "tools/bench/kernel_batch.h"

namespace hadal::testing {
namespace {

using Products = std::vector<cuda::MatmulArgs>;

auto Fields(const cuda::MatmulArgs& p) {
  return std::tuple(p.m, p.n, p.k, p.a.data, p.a.stride, p.a.storage, p.a_transposed, p.b.data, p.b.stride, p.b.storage,
                    p.b_transposed, p.bias.data, p.relu, p.written_mask, p.read_mask, p.a_sums.data, p.accumulate,
                    p.c.data, p.c.stride, p.c.storage, p.count, p.a_step, p.b_step, p.c_step);
}

// A small model on an emulated device.
class Training {
 public:
  Training(Storage storage, int recompute_every) : plan_(ModelPlan::Make(Model())), recompute_every_(recompute_every) {
    plan_.compute_storage = storage;
    batches_ = {RandomBatch(kBatch, 0), RandomBatch(kBatch, 1)};
  }

  absl::Status Prepare(Communicator& communicator) {
    HADAL_ASSIGN_OR_RETURN(pipeline_,
                           MakePipelineLayout(plan_, {.micro_batches = 2, .source_tokens = 8, .target_tokens = 8},
                                              {.recompute_every = recompute_every_}, 1));
    HADAL_ASSIGN_OR_RETURN(engine_, Engine::Create({.plan = plan_,
                                                    .pipeline = pipeline_,
                                                    .stream = stream_,
                                                    .purpose = Purpose::kTraining,
                                                    .world = communicator,
                                                    .timeout = absl::Minutes(1)}));
    HADAL_RETURN_IF_ERROR(
        InitializeParameters(pipeline_, engine_->stage().parameters(), 1, stream_, communicator, absl::Minutes(1)));
    return engine_->DistributeWeights();
  }
  // The gradient's norm: of equal bits where every gradient is.
  absl::StatusOr<double> Step() {
    ++steps_;
    HADAL_ASSIGN_OR_RETURN(
        const StepResult result,
        engine_->TrainingStep(batches_, {.seed = 1, .step = steps_, .update = steps_, .gradient_scale = 0.05f},
                              {.learning_rate = 1e-3}));
    return result.gradient.norm;
  }
  // A step's products, kernel by kernel.
  absl::StatusOr<Products> NotedStep() {
    Products products;
    engine_->UseGraphs(false);
    device_.NoteProducts(&products);
    const absl::Status status = Step().status();
    device_.NoteProducts(nullptr);
    engine_->UseGraphs(true);
    HADAL_RETURN_IF_ERROR(status);
    return products;
  }

  EmulatedDevice& device() { return device_; }
  StepFlops flops() const { return StepFlopsOf(plan_, batches_, recompute_every_ > 0); }

 private:
  static constexpr BenchBatchOptions kBatch = {.vocabulary = 24, .tokens = 8, .length = 4, .mixed_length = true};
  static ModelOptions Model() {
    return testing::SmallModel(ResidualMethod::kDeepNorm,
                               {.encoder_layers = 1, .decoder_layers = 1, .heads = 2, .vocabulary = kBatch.vocabulary});
  }

  EmulatedDevice device_{5};
  Stream stream_ = Stream::On(device_, 1);
  ModelPlan plan_;
  int recompute_every_;
  PipelineLayout pipeline_;
  std::vector<PackedBatch> batches_;
  std::unique_ptr<Engine> engine_;
  int64_t steps_ = 0;
};

absl::Status InWorld(const std::function<absl::Status(Communicator&)>& body) {
  InProcessWorld world(1);
  return world.Run([&](Communicator& communicator) {
    PrepareComputeThread();
    return body(communicator);
  });
}

TEST(DeviceGemmLimit, RunsTheStepsProductsAndNothingElse) {
  const absl::Status status = InWorld([](Communicator& communicator) -> absl::Status {
    for (const Storage storage : {Storage::kFloat32, Storage::kBFloat16}) {
      for (const int recompute_every : {0, 2}) {
        Training training(storage, recompute_every);
        HADAL_RETURN_IF_ERROR(training.Prepare(communicator));
        HADAL_ASSIGN_OR_RETURN(const Products noted, training.NotedStep());
        const GemmLimit limit = DeviceGemmLimit(training.device(), noted);
        EXPECT_EQ(limit.flops, training.flops().linear + training.flops().recomputed_linear);
        EXPECT_EQ(limit.ways.size(), 2u);

        Products again;
        training.device().NoteProducts(&again);
        int64_t launches = training.device().launches();
        limit.run(0);
        training.device().NoteProducts(nullptr);
        EXPECT_EQ(training.device().launches() - launches, static_cast<int64_t>(noted.size()));
        EXPECT_EQ(again.size(), noted.size());
        for (size_t i = 0; i < again.size(); ++i) EXPECT_EQ(Fields(again[i]), Fields(noted[i])) << "product " << i;

        launches = training.device().launches();
        limit.run(1);
        EXPECT_EQ(training.device().launches() - launches, 1);

        HADAL_ASSIGN_OR_RETURN(const Products next, training.NotedStep());
        EXPECT_EQ(next.size(), noted.size());
        for (size_t i = 0; i < next.size(); ++i) EXPECT_EQ(Fields(next[i]), Fields(noted[i])) << "product " << i;
      }
    }
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
}

TEST(DeviceGemmLimit, ChangesNoStep) {
  std::vector<double> norms[2];
  for (const bool with_limit : {false, true}) {
    const absl::Status status = InWorld([&](Communicator& communicator) -> absl::Status {
      Training training(Storage::kFloat32, 2);
      HADAL_RETURN_IF_ERROR(training.Prepare(communicator));
      HADAL_ASSIGN_OR_RETURN(Products products, training.NotedStep());
      const GemmLimit limit = DeviceGemmLimit(training.device(), std::move(products));
      for (int i = 0; i < 3; ++i) {
        for (const size_t way : {0, 1}) {
          if (with_limit) limit.run(way);
        }
        HADAL_ASSIGN_OR_RETURN(const double norm, training.Step());
        norms[with_limit ? 1 : 0].push_back(norm);
      }
      return absl::OkStatus();
    });
    ASSERT_TRUE(status.ok()) << status;
  }
  EXPECT_EQ(norms[0], norms[1]);
}

TEST(DeviceGemmLimit, OneWayWhereNoGraphFits) {
  const absl::Status status = InWorld([](Communicator& communicator) -> absl::Status {
    Training training(Storage::kFloat32, 0);
    HADAL_RETURN_IF_ERROR(training.Prepare(communicator));
    HADAL_ASSIGN_OR_RETURN(Products products, training.NotedStep());
    training.device().RefuseGraphs();
    const GemmLimit limit = DeviceGemmLimit(training.device(), std::move(products));
    EXPECT_EQ(limit.ways.size(), 1u);
    limit.run(0);
    return training.Step().status();
  });
  EXPECT_TRUE(status.ok()) << status;
}

}  // namespace
}  // namespace hadal::testing
