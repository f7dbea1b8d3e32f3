// The kernels that only stream through memory once a step: Adam, sums of squares, and the loss over a vocabulary.
// Reported: bytes a second that the algorithm must move (Adam: 4 reads and 3 writes of fp32 an element; sums of
// squares: one read; cross-entropy: two reads and a write, of which the second read comes from a cache where a row
// fits).
#include <vector>

#include "benchmark/benchmark.h"
#include "kernels/adam.h"
#include "kernels/cross_entropy.h"
#include "kernels/sum_of_squares.h"
#include "tests/support/random_inputs.h"

namespace hadal {
namespace {

// Arguments: elements, threads.
void RunAdam(benchmark::State& state) {
  const int64_t count = state.range(0);
  const Stream stream = Stream::Cpu(static_cast<int>(state.range(1)));
  std::vector<float> parameter(count, 0.5f), gradient(count, 1e-3f), first(count), second(count);
  const AdamArgs args = {.parameter = {parameter.data(), count},
                         .gradient = {gradient.data(), count},
                         .first_moment = {first.data(), count},
                         .second_moment = {second.data(), count},
                         .learning_rate = 1e-3};
  for (auto _ : state) AdamStep(stream, args);
  state.SetBytesProcessed(state.iterations() * count * 7 * static_cast<int64_t>(sizeof(float)));
}
BENCHMARK(RunAdam)
    ->ArgNames({"elements", "threads"})
    ->ArgsProduct({{1 << 16, 1 << 20, 1 << 25}, {1, 2}})
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);

// Argument: elements.
void RunSumOfSquares(benchmark::State& state) {
  const std::vector<float> x(state.range(0), 0.5f);
  for (auto _ : state) benchmark::DoNotOptimize(SumOfSquares({x.data(), state.range(0)}));
  state.SetBytesProcessed(state.iterations() * state.range(0) * static_cast<int64_t>(sizeof(float)));
}
BENCHMARK(RunSumOfSquares)
    ->ArgName("elements")
    ->Arg(1 << 16)
    ->Arg(1 << 20)
    ->Arg(1 << 25)
    ->Unit(benchmark::kMicrosecond);

// Arguments: vocabulary, threads. The logits decay towards the same gradient; their values do not change the time.
void RunCrossEntropy(benchmark::State& state) {
  constexpr int64_t kRows = 1024;
  const int64_t vocabulary = state.range(0);
  const Stream stream = Stream::Cpu(static_cast<int>(state.range(1)));
  std::vector<float> logits(kRows * vocabulary, 0.25f), loss(kRows), nll(kRows);
  const std::vector<int32_t> targets(kRows, 3);
  for (auto _ : state) {
    CrossEntropy(stream, {.logits = {logits.data(), kRows, vocabulary},
                          .targets = {targets.data(), kRows},
                          .label_smoothing = 0.1f,
                          .gradient_scale = 1.0f,
                          .loss = {loss.data(), kRows},
                          .nll = {nll.data(), kRows}});
  }
  state.SetBytesProcessed(state.iterations() * kRows * vocabulary * 3 * static_cast<int64_t>(sizeof(float)));
}
BENCHMARK(RunCrossEntropy)
    ->ArgNames({"vocabulary", "threads"})
    ->ArgsProduct({{8000, 32000}, {1, 2}})
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace hadal

BENCHMARK_MAIN();
