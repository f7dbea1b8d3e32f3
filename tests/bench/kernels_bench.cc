// Speed of the kernels that a training step spends its time in: GFLOP/s of the linear layers, GB/s of the residual
// connection (bytes it must read and write once). 1,024 rows; the arguments name width and threads.
//
//   build/cpu/tests/bench/kernels_bench --benchmark_filter=ResidualNorm
//
// Each benchmark walks through several sets of buffers, as the layers of a deep model do, so that no set stays in cache.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "benchmark/benchmark.h"
#include "hwy/aligned_allocator.h"
#include "kernels/linear.h"
#include "kernels/residual_norm.h"
#include "runtime/compute_thread.h"
#include "runtime/stream.h"

namespace hadal {
namespace {

constexpr int64_t kRows = 1024;
constexpr int64_t kSets = 6;

// kSets dense matrices, on cache lines as the arena lays them out.
class MatrixSets {
 public:
  MatrixSets(int64_t rows, int64_t columns, float value)
      : rows_(rows), columns_(columns), values_(hwy::AllocateAligned<float>(kSets * rows * columns)) {
    for (int64_t i = 0; i < kSets * rows * columns; ++i) values_[i] = value * static_cast<float>(i % 7);
  }
  Matrix operator[](int64_t set) { return {values_.get() + set % kSets * rows_ * columns_, rows_, columns_}; }

 private:
  int64_t rows_, columns_;
  hwy::AlignedFreeUniquePtr<float[]> values_;
};

void ReportFlops(benchmark::State& state, int64_t in, int64_t out) {
  state.counters["FLOP/s"] = benchmark::Counter(2.0 * kRows * in * out, benchmark::Counter::kIsIterationInvariantRate);
}

Dropout ResidualDropout(bool on) { return {{.seed = 1}, on ? Dropout::Threshold(0.1) : 0}; }

// Arguments: in, out, threads.
void LinearForwardBiasReluDropout(benchmark::State& state) {
  const int64_t in = state.range(0), out = state.range(1);
  const Stream stream = Stream::Cpu(static_cast<int>(state.range(2)));
  MatrixSets x(kRows, in, 0.01f), weight(out, in, 0.02f), y(kRows, out, 0);
  const std::vector<float> bias(out, 0.5f);
  int64_t set = 0;
  for (auto _ : state) {
    LinearForward(stream, {.x = x[set],
                           .weight = weight[set],
                           .bias = {bias.data(), out},
                           .relu = true,
                           .dropout = ResidualDropout(true),
                           .y = y[set]});
    ++set;
  }
  ReportFlops(state, in, out);
}

void LinearForwardPlain(benchmark::State& state) {
  const int64_t in = state.range(0), out = state.range(1);
  const Stream stream = Stream::Cpu(static_cast<int>(state.range(2)));
  MatrixSets x(kRows, in, 0.01f), weight(out, in, 0.02f), y(kRows, out, 0);
  int64_t set = 0;
  for (auto _ : state) {
    LinearForward(stream, {.x = x[set], .weight = weight[set], .y = y[set]});
    ++set;
  }
  ReportFlops(state, in, out);
}

void LinearBackwardInputMasked(benchmark::State& state) {
  const int64_t in = state.range(0), out = state.range(1);
  const Stream stream = Stream::Cpu(static_cast<int>(state.range(2)));
  MatrixSets dy(kRows, out, 0.01f), weight(out, in, 0.02f), hidden(kRows, in, 0.5f), dx(kRows, in, 0);
  int64_t set = 0;
  for (auto _ : state) {
    LinearBackwardInput(
        stream, {.dy = dy[set], .weight = weight[set], .relu_output = hidden[set], .mask_scale = 1.1f, .dx = dx[set]});
    ++set;
  }
  ReportFlops(state, in, out);
}

void LinearBackwardWeightAndBias(benchmark::State& state) {
  const int64_t in = state.range(0), out = state.range(1);
  const Stream stream = Stream::Cpu(static_cast<int>(state.range(2)));
  MatrixSets dy(kRows, out, 1e-6f), x(kRows, in, 0.02f), d_weight(out, in, 0);
  std::vector<float> d_bias(out);
  int64_t set = 0;
  for (auto _ : state) {
    LinearBackwardWeight(stream,
                         {.dy = dy[set], .x = x[set], .d_weight = d_weight[set], .d_bias = {d_bias.data(), out}});
    ++set;
  }
  ReportFlops(state, in, out);
}

void ReportBytes(benchmark::State& state, int64_t matrices, int64_t width) {
  state.SetBytesProcessed(state.iterations() * matrices * kRows * width * static_cast<int64_t>(sizeof(float)));
}

// Arguments: width, threads, dropout.
void ResidualNormForwardFull(benchmark::State& state) {
  const int64_t width = state.range(0);
  const Stream stream = Stream::Cpu(static_cast<int>(state.range(1)));
  MatrixSets x(kRows, width, 0.1f), y(kRows, width, 0.2f), s(kRows, width, 0), n(kRows, width, 0);
  const std::vector<float> bias(width, 0.5f);
  std::vector<float> mean(kRows), rstd(kRows);
  int64_t set = 0;
  for (auto _ : state) {
    ResidualNormForward(stream, {.stream = x[set],
                                 .branch = y[set],
                                 .bias = {bias.data(), width},
                                 .residual_gain = 2,
                                 .dropout = ResidualDropout(state.range(2)),
                                 .scale = {bias.data(), width},
                                 .shift = {bias.data(), width},
                                 .sum = s[set],
                                 .normed = n[set],
                                 .mean = {mean.data(), kRows},
                                 .rstd = {rstd.data(), kRows}});
    ++set;
  }
  ReportBytes(state, 4, width);
}

void ResidualNormBackwardFull(benchmark::State& state) {
  const int64_t width = state.range(0);
  const Stream stream = Stream::Cpu(static_cast<int>(state.range(1)));
  MatrixSets d_normed(kRows, width, 0.1f), s(kRows, width, 0.2f), d_stream(kRows, width, 0), d_branch(kRows, width, 0);
  const std::vector<float> scale(width, 0.5f), mean(kRows, 0.5f), rstd(kRows, 2.0f);
  std::vector<float> d_bias(width), d_scale(width), d_shift(width), partials(ResidualNormPartials(kRows, width));
  int64_t set = 0;
  for (auto _ : state) {
    ResidualNormBackward(stream, {.d_normed = d_normed[set],
                                  .sum = s[set],
                                  .mean = {mean.data(), kRows},
                                  .rstd = {rstd.data(), kRows},
                                  .scale = {scale.data(), width},
                                  .residual_gain = 2,
                                  .dropout = ResidualDropout(state.range(2)),
                                  .d_stream = d_stream[set],
                                  .d_branch = d_branch[set],
                                  .d_bias = {d_bias.data(), width},
                                  .d_scale = {d_scale.data(), width},
                                  .d_shift = {d_shift.data(), width},
                                  .partials = {partials.data(), static_cast<int64_t>(partials.size())}});
    ++set;
  }
  ReportBytes(state, 4, width);
}

// What the residual connection is held against: as many bytes read and written, and no arithmetic.
void CopyFourMatrices(benchmark::State& state) {
  const int64_t width = state.range(0), n = kRows * width;
  const Stream stream = Stream::Cpu(static_cast<int>(state.range(1)));
  MatrixSets a(kRows, width, 0.1f), b(kRows, width, 0.2f), c(kRows, width, 0), d(kRows, width, 0);
  int64_t set = 0;
  for (auto _ : state) {
    const float *from_a = a[set].data, *from_b = b[set].data;
    float *to_c = c[set].data, *to_d = d[set].data;
    stream.ForRanges(n, 1024, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; i += 1024) {
        std::copy(from_a + i, from_a + i + 1024, to_c + i);
        std::copy(from_b + i, from_b + i + 1024, to_d + i);
      }
    });
    ++set;
  }
  ReportBytes(state, 4, width);
}

void LinearShapes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"in", "out", "threads"})->UseRealTime();
  for (const int64_t d : {64, 128, 512}) {
    for (const int64_t threads : {1, 2}) b->Args({d, 4 * d, threads})->Args({4 * d, d, threads})->Args({d, d, threads});
  }
}
BENCHMARK(LinearForwardPlain)->Apply(LinearShapes);
BENCHMARK(LinearForwardBiasReluDropout)->Apply(LinearShapes);
BENCHMARK(LinearBackwardInputMasked)->Apply(LinearShapes);
BENCHMARK(LinearBackwardWeightAndBias)->Apply(LinearShapes);

void ResidualShapes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"d", "threads", "dropout"})->UseRealTime()->ArgsProduct({{64, 128, 512}, {1, 2}, {0, 1}});
}
BENCHMARK(ResidualNormForwardFull)->Apply(ResidualShapes);
BENCHMARK(ResidualNormBackwardFull)->Apply(ResidualShapes);
BENCHMARK(CopyFourMatrices)->ArgNames({"d", "threads"})->UseRealTime()->ArgsProduct({{64, 128, 512}, {1, 2}});

}  // namespace
}  // namespace hadal

// Serial libraries, as a rank's threads have them.
int main(int argc, char** argv) {
  hadal::PrepareComputeThread();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
