// Attention against oneDNN's batched matrix products of the same shapes: how much of the processor's peak each reaches.
//
//   AttentionForward, AttentionBackward   everything: softmax, copies, gradients
//   OneDnnForward, OneDnnBackward         the 2 and the 5 matrix products alone, scores in memory, no softmax
//
// 1,024 rows in sentences of 32 tokens. Arguments: head width, heads, threads. Counted operations: 4 and 10 a (query,
// key, column of a head), for both; causal attention is counted as if it were not.
#include <omp.h>

#include <array>
#include <vector>

#include "benchmark/benchmark.h"
#include "dnnl.hpp"
#include "kernels/attention.h"
#include "tests/support/random_inputs.h"

namespace hadal {
namespace {

constexpr int64_t kRows = 1024;
constexpr int64_t kLength = 32;
constexpr int64_t kSentences = kRows / kLength;

void CountOperations(benchmark::State& state, double operations_per_score_column) {
  const double operations = operations_per_score_column * kRows * kLength * state.range(0) * state.range(1);
  state.counters["GFLOP/s"] = benchmark::Counter(operations * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}

// A layer's buffers: q, k and v side by side, as one projection writes them.
struct Layer {
  Layer(int64_t columns, int32_t heads, int threads)
      : qkv(kRows, 3 * columns, 1, 1.0f),
        d_qkv(kRows, 3 * columns),
        d_output(kRows, columns, 2, 1.0f),
        output(kRows, columns),
        log_sum_exp(kRows, heads),
        scratch(AttentionScratch(Stream::Cpu(threads), {.max_length = kLength, .head_width = columns / heads})) {
    for (int64_t n = 0; n <= kSentences; ++n) offsets.push_back(static_cast<int32_t>(n * kLength));
    shape = {.query_offsets = {offsets.data(), kSentences + 1},
             .key_offsets = {offsets.data(), kSentences + 1},
             .heads = heads};
  }
  AttentionForwardArgs Forward() {
    const int64_t columns = output.columns;
    return {.shape = shape,
            .q = qkv.view().Columns(0, columns),
            .k = qkv.view().Columns(columns, columns),
            .v = qkv.view().Columns(2 * columns, columns),
            .dropout = dropout,
            .output = output.view(),
            .log_sum_exp = log_sum_exp.view(),
            .scratch = {scratch.data(), static_cast<int64_t>(scratch.size())}};
  }
  AttentionBackwardArgs Backward() {
    const int64_t columns = output.columns;
    const AttentionForwardArgs forward = Forward();
    return {.shape = shape,
            .q = forward.q,
            .k = forward.k,
            .v = forward.v,
            .log_sum_exp = forward.log_sum_exp,
            .d_output = d_output.view(),
            .dropout = dropout,
            .d_q = d_qkv.view().Columns(0, columns),
            .d_k = d_qkv.view().Columns(columns, columns),
            .d_v = d_qkv.view().Columns(2 * columns, columns),
            .scratch = forward.scratch};
  }

  std::vector<int32_t> offsets;
  AttentionShape shape;
  Dropout dropout;
  testing::OwnedMatrix qkv, d_qkv, d_output, output, log_sum_exp;
  std::vector<float> scratch;
};

Layer MakeLayer(const benchmark::State& state) {
  return Layer(state.range(0) * state.range(1), static_cast<int32_t>(state.range(1)), static_cast<int>(state.range(2)));
}

void RunForward(benchmark::State& state, bool causal, double dropout) {
  const Stream stream = Stream::Cpu(static_cast<int>(state.range(2)));
  Layer layer = MakeLayer(state);
  layer.shape.causal = causal;
  layer.dropout = {{.seed = 1, .site = RandomSite::kAttention}, Dropout::Threshold(dropout)};
  const AttentionForwardArgs args = layer.Forward();
  for (auto _ : state) AttentionForward(stream, args);
  CountOperations(state, 4);
}

void RunBackward(benchmark::State& state, bool causal, double dropout) {
  const Stream stream = Stream::Cpu(static_cast<int>(state.range(2)));
  Layer layer = MakeLayer(state);
  layer.shape.causal = causal;
  layer.dropout = {{.seed = 1, .site = RandomSite::kAttention}, Dropout::Threshold(dropout)};
  AttentionForward(stream, layer.Forward());
  const AttentionBackwardArgs args = layer.Backward();
  for (auto _ : state) AttentionBackward(stream, args);
  CountOperations(state, 10);
}

// A batch of products c = a·b over all (sentence, head) pairs. Axes: sentence, head, row, column.
class OneDnnProduct {
 public:
  using Strides = dnnl::memory::dims;
  OneDnnProduct(const dnnl::engine& engine, int64_t heads, std::array<int64_t, 3> m_k_n, std::array<Strides, 3> strides,
                std::array<float*, 3> data) {
    const auto [m, k, n] = m_k_n;
    const auto describe = [&](int64_t rows, int64_t columns, const Strides& s) {
      return dnnl::memory::desc({kSentences, heads, rows, columns}, dnnl::memory::data_type::f32, s);
    };
    const dnnl::memory::desc a = describe(m, k, strides[0]), b = describe(k, n, strides[1]),
                             c = describe(m, n, strides[2]);
    primitive_ = dnnl::matmul(dnnl::matmul::primitive_desc(dnnl::matmul::desc(a, b, c), engine));
    arguments_ = {{DNNL_ARG_SRC, dnnl::memory(a, engine, data[0])},
                  {DNNL_ARG_WEIGHTS, dnnl::memory(b, engine, data[1])},
                  {DNNL_ARG_DST, dnnl::memory(c, engine, data[2])}};
  }
  void Run(dnnl::stream& stream) const { primitive_.execute(stream, arguments_); }

 private:
  dnnl::matmul primitive_;
  std::unordered_map<int, dnnl::memory> arguments_;
};

void RunOneDnn(benchmark::State& state, bool backward) {
  omp_set_num_threads(static_cast<int>(state.range(2)));
  const int64_t heads = state.range(1), width = state.range(0), columns = heads * width;
  Layer layer = MakeLayer(state);
  dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  std::vector<float> scores(kRows * kLength * heads, 0.01f), d_scores = scores;
  const auto rows_of = [&](int64_t stride) { return dnnl::memory::dims{kLength * stride, width, stride, 1}; };
  const auto transposed = [&](int64_t stride) { return dnnl::memory::dims{kLength * stride, width, 1, stride}; };
  const dnnl::memory::dims score{heads * kLength * kLength, kLength * kLength, kLength, 1};
  const dnnl::memory::dims score_transposed{heads * kLength * kLength, kLength * kLength, 1, kLength};
  const int64_t fused = 3 * columns;
  float* q = layer.qkv.values.data();
  float* k = q + columns;
  float* v = k + columns;
  float* d_q = layer.d_qkv.values.data();
  float* d_o = layer.d_output.values.data();
  const std::array<int64_t, 3> to_scores = {kLength, width, kLength}, from_scores = {kLength, kLength, width};

  std::vector<OneDnnProduct> products;
  products.emplace_back(engine, heads, to_scores, std::array{rows_of(fused), transposed(fused), score},
                        std::array{q, k, scores.data()});
  if (backward) {
    products.emplace_back(engine, heads, to_scores, std::array{rows_of(columns), transposed(fused), score},
                          std::array{d_o, v, d_scores.data()});
    products.emplace_back(engine, heads, from_scores, std::array{score, rows_of(fused), rows_of(fused)},
                          std::array{d_scores.data(), k, d_q});
    products.emplace_back(engine, heads, from_scores, std::array{score_transposed, rows_of(fused), rows_of(fused)},
                          std::array{d_scores.data(), q, d_q + columns});
    products.emplace_back(engine, heads, from_scores, std::array{score_transposed, rows_of(columns), rows_of(fused)},
                          std::array{scores.data(), d_o, d_q + 2 * columns});
  } else {
    products.emplace_back(engine, heads, from_scores, std::array{score, rows_of(fused), rows_of(columns)},
                          std::array{scores.data(), v, layer.output.values.data()});
  }
  for (auto _ : state) {
    for (const OneDnnProduct& product : products) product.Run(stream);
    stream.wait();
  }
  CountOperations(state, backward ? 10 : 4);
}

// The models: d = 64, 128, 512.
void Shapes(benchmark::internal::Benchmark* benchmark) {
  for (const int64_t threads : {1, 2}) {
    benchmark->Args({16, 4, threads})->Args({32, 4, threads})->Args({64, 8, threads});
  }
  benchmark->ArgNames({"width", "heads", "threads"})->UseRealTime()->Unit(benchmark::kMicrosecond);
}

BENCHMARK_CAPTURE(RunForward, AttentionForward, false, 0.0)->Apply(Shapes);
BENCHMARK_CAPTURE(RunOneDnn, OneDnnForward, false)->Apply(Shapes);
BENCHMARK_CAPTURE(RunBackward, AttentionBackward, false, 0.0)->Apply(Shapes);
BENCHMARK_CAPTURE(RunOneDnn, OneDnnBackward, true)->Apply(Shapes);
BENCHMARK_CAPTURE(RunForward, CausalForward, true, 0.0)->Apply(Shapes);
BENCHMARK_CAPTURE(RunBackward, CausalBackward, true, 0.0)->Apply(Shapes);
BENCHMARK_CAPTURE(RunForward, DropoutForward, false, 0.1)->Apply(Shapes);
BENCHMARK_CAPTURE(RunBackward, DropoutBackward, false, 0.1)->Apply(Shapes);

}  // namespace
}  // namespace hadal

BENCHMARK_MAIN();
