// A training step allocates nothing that grows with the work: every buffer is in the arena before the first step.
#include <atomic>
#include <cstdlib>
#include <new>

#include "gtest/gtest.h"
#include "layers/parameter_store.h"
#include "pipeline/engine/engine.h"
#include "pipeline/exchange/parameter_broadcast.h"
#include "pipeline/layout/pipeline_layout.h"
#include "runtime/comm/in_process_communicator.h"
#include "runtime/compute_thread.h"
#include "runtime/data/sampling_order.h"
#include "runtime/status_macros.h"
#include "tests/integration/pipeline_run.h"
#include "tests/support/step_batches.h"
#include "tests/support/training_engine.h"

namespace {

std::atomic<bool> counting = false;
std::atomic<int64_t> allocations = 0;

}  // namespace

// Every `new` of this program, in every thread. Not inlined: one without the other would look like a mismatch to the
// compiler.
[[gnu::noinline]] void* operator new(std::size_t size) {
  if (counting) ++allocations;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new[](std::size_t size) { return ::operator new(size); }
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace hadal::testing {
namespace {

// Allocations of the third step over the same batches.
int64_t AllocationsOfAStep(int layers, int micro_batches, int32_t tokens,
                           ResidualMethod method = ResidualMethod::kDeepNorm) {
  const ModelPlan plan =
      ModelPlan::Make(SmallModel(method, {.encoder_layers = layers, .decoder_layers = layers, .d_model = 32}));
  const BatchOptions batch{.micro_batches = micro_batches, .source_tokens = tokens, .target_tokens = tokens};
  const PipelineLayout pipeline = *MakePipelineLayout(plan, batch, {}, 1);
  const Corpus corpus = RandomCorpus(100, 10, 50, 3);
  SamplingOrder order = *SamplingOrder::Create(
      corpus, {.seed = 1, .capacity = {tokens, tokens}, .micro_batches_per_step = micro_batches});
  InProcessWorld world(1);
  EXPECT_TRUE(world
                  .Run([&](Communicator& communicator) -> absl::Status {
                    PrepareComputeThread();
                    const Stream stream = Stream::Cpu(2);
                    auto engine = *TrainingEngine(plan, pipeline, communicator, stream);
                    (void)InitializeParameters(pipeline, engine->stage().parameters(), 1, stream, communicator,
                                               absl::Seconds(30));
                    for (int step = 0; step < 3; ++step) {
                      HADAL_RETURN_IF_ERROR(order.Continue(DataPlace()));
                      const StepBatches batches = NextStep(order);
                      if (step == 2) {
                        allocations = 0;
                        counting = true;
                      }
                      const auto result =
                          engine->TrainingStep(batches.micro_batches,
                                               {.seed = 1,
                                                .step = step,
                                                .update = step + 1,
                                                .gradient_scale = 1.0f / static_cast<float>(batches.target_tokens)},
                                               {.learning_rate = 1e-3});
                      counting = false;
                      if (!result.ok()) return result.status();
                    }
                    return absl::OkStatus();
                  })
                  .ok());
  return allocations;
}

TEST(StepAllocations, DoNotGrowWithTheWork) {
  const int64_t small = AllocationsOfAStep(2, 2, 32);
  EXPECT_EQ(AllocationsOfAStep(2, 2, 128), small) << "with more tokens";
  EXPECT_EQ(AllocationsOfAStep(2, 6, 32), small) << "with more micro-batches";
  // The sums a sublayer that a step reports grow with the depth; nothing else may.
  EXPECT_LE(AllocationsOfAStep(12, 2, 32), small + 4) << "with more layers";
  EXPECT_LE(small, 18);
  EXPECT_LE(AllocationsOfAStep(12, 2, 32, ResidualMethod::kDlclPre), small + 4) << "with a history";
}

}  // namespace
}  // namespace hadal::testing
