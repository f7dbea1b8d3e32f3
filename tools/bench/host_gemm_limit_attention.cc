#include "tools/bench/host_gemm_limit_attention.h"

#include <omp.h>

#include <algorithm>

namespace hadal {
namespace {

constexpr int64_t kStrip = 8;  // hadal's causal strips (kernels/cpu/attention_work.h)

using Dims = dnnl::memory::dims;

// A batch of matrices [sentences, heads, rows, columns].
dnnl::memory::desc Batch(int64_t sentences, int64_t heads, int64_t rows, int64_t columns, const Dims& strides) {
  return {Dims{sentences, heads, rows, columns}, dnnl::memory::data_type::f32, strides};
}

// The share of a causal square that is computed with strips of kStrip keys.
double CausalShare(int64_t length) {
  double columns = 0;
  for (int64_t i = 0; i < length; i += kStrip) {
    const int64_t rows = std::min(kStrip, length - i);
    columns += static_cast<double>(rows) * static_cast<double>(std::min(length, i + kStrip));
  }
  return columns / (static_cast<double>(length) * static_cast<double>(length));
}

}  // namespace

void AttentionProducts::Product::Execute(dnnl::stream& stream, float* a_data, float* b_data, float* c_data) {
  a.set_data_handle(a_data);
  b.set_data_handle(b_data);
  c.set_data_handle(c_data);
  primitive.execute(stream, arguments);
}

AttentionProducts::AttentionProducts(const AttentionShape& shape, int64_t head_width, int64_t query_stride,
                                     int64_t key_stride, const Stream& stream)
    : stream_(stream),
      engine_(dnnl::engine::kind::cpu, 0),
      heads_(shape.heads),
      head_width_(head_width),
      query_stride_(query_stride),
      key_stride_(key_stride),
      causal_(shape.causal) {
  const int64_t sentences = shape.query_offsets.size - 1;
  const int before = omp_get_max_threads();
  omp_set_num_threads(stream.threads());
  library_ = MakeRuns(shape, 0, sentences);
  omp_set_num_threads(1);
  for (int t = 0; t < stream.threads(); ++t) {
    own_.push_back(MakeRuns(shape, sentences * t / stream.threads(), sentences * (t + 1) / stream.threads()));
  }
  omp_set_num_threads(before);
  for (const Run& run : library_) {
    const int64_t square = run.queries * run.keys;
    score_floats_ += run.sentences * heads_ * square;
    product_flops_ += 2.0 * static_cast<double>(run.sentences * heads_ * square * head_width_);
  }
}

AttentionProducts::Runs AttentionProducts::MakeRuns(const AttentionShape& shape, int64_t first_sentence,
                                                    int64_t last_sentence) {
  Runs runs;
  double owed = 0;  // causal: arithmetic not yet multiplied, in sentences
  int64_t scores = 0;
  for (int64_t n = 0; n < last_sentence; ++n) {
    const int64_t queries = shape.query_offsets[n + 1] - shape.query_offsets[n];
    const int64_t keys = shape.key_offsets[n + 1] - shape.key_offsets[n];
    owed += causal_ ? CausalShare(queries) : 1;
    if (queries == 0 || keys == 0 || owed < 0.5) continue;
    owed -= 1;
    const int64_t floats = heads_ * queries * keys;
    scores += floats;
    if (n < first_sentence) continue;
    if (!runs.empty()) {
      Run& last = runs.back();
      if (last.queries == queries &&
          last.keys == keys) {  // causal: a skipped neighbour of equal length stands for this one
        ++last.sentences;
        continue;
      }
    }
    runs.push_back({.first_query = shape.query_offsets[n],
                    .queries = queries,
                    .first_key = shape.key_offsets[n],
                    .keys = keys,
                    .sentences = 1,
                    .scores = scores - floats});
  }
  for (Run& run : runs) PrepareProducts(run);
  return runs;
}

void AttentionProducts::PrepareProducts(Run& run) const {
  const int64_t n = run.sentences, q = run.queries, k = run.keys, d = head_width_, width = heads_ * d;
  const Dims query_rows{q * query_stride_, d, query_stride_, 1};
  const Dims key_rows{k * key_stride_, d, key_stride_, 1};
  const auto queries = Batch(n, heads_, q, d, query_rows);
  const auto keys = Batch(n, heads_, k, d, key_rows);
  const auto keys_t = Batch(n, heads_, d, k, {k * key_stride_, d, 1, key_stride_});
  const auto scores = Batch(n, heads_, q, k, {heads_ * q * k, q * k, k, 1});
  const auto scores_t = Batch(n, heads_, k, q, {heads_ * q * k, q * k, 1, k});
  const auto output = Batch(n, heads_, q, d, {q * width, d, width, 1});
  const auto prepare = [&](Product& product, const dnnl::memory::desc& a, const dnnl::memory::desc& b,
                           const dnnl::memory::desc& c) {
    product.primitive = dnnl::matmul(dnnl::matmul::primitive_desc(dnnl::matmul::desc(a, b, c), engine_));
    product.a = dnnl::memory(a, engine_, nullptr);
    product.b = dnnl::memory(b, engine_, nullptr);
    product.c = dnnl::memory(c, engine_, nullptr);
    product.arguments = {{DNNL_ARG_SRC, product.a}, {DNNL_ARG_WEIGHTS, product.b}, {DNNL_ARG_DST, product.c}};
  };
  prepare(run.score, queries, keys_t, scores);
  prepare(run.output, scores, keys, output);
  prepare(run.d_value, scores_t, output, keys);
  prepare(run.d_query, scores, keys, queries);
  prepare(run.d_key, scores_t, queries, keys);
}

void AttentionProducts::ForwardRuns(Runs& runs, const AttentionOperands& o) {
  dnnl::stream queue(engine_);
  const int64_t width = heads_ * head_width_;
  for (Run& run : runs) {
    const int64_t query = run.first_query * query_stride_, key = run.first_key * key_stride_;
    run.score.Execute(queue, o.q + query, o.k + key, o.scores + run.scores);
    run.output.Execute(queue, o.scores + run.scores, o.v + key, o.output + run.first_query * width);
  }
}

void AttentionProducts::BackwardRuns(Runs& runs, const AttentionOperands& o) {
  dnnl::stream queue(engine_);
  const int64_t width = heads_ * head_width_;
  for (Run& run : runs) {
    const int64_t query = run.first_query * query_stride_, key = run.first_key * key_stride_;
    float* d_output = o.d_output + run.first_query * width;
    float *scores = o.scores + run.scores, *d_scores = o.d_scores + run.scores;
    run.score.Execute(queue, o.q + query, o.k + key, scores);
    // dO has the output's row stride, not the query's. If both are equal, this is the product of S; otherwise it costs
    // the same.
    run.score.Execute(queue, o.q + query, o.v + key, d_scores);
    run.d_value.Execute(queue, scores, d_output, o.d_v + key);
    run.d_query.Execute(queue, d_scores, o.k + key, o.d_q + query);
    run.d_key.Execute(queue, d_scores, o.q + query, o.d_k + key);
  }
}

void AttentionProducts::Forward(ProductThreading threading, const AttentionOperands& operands) {
  if (threading == ProductThreading::kLibrary) return ForwardRuns(library_, operands);
  stream_.Run([&](int thread) { ForwardRuns(own_[thread], operands); });
}

void AttentionProducts::Backward(ProductThreading threading, const AttentionOperands& operands) {
  if (threading == ProductThreading::kLibrary) return BackwardRuns(library_, operands);
  stream_.Run([&](int thread) { BackwardRuns(own_[thread], operands); });
}

}  // namespace hadal
