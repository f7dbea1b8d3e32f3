#include "tools/bench/gemm_limit.h"

#include <dnnl.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "layers/adaptive_bands.h"
#include "layers/chunk_part.h"
#include "pipeline/stage/graph_cache.h"
#include "runtime/clock.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

constexpr int kBuffers = 6;  // for inputs and for outputs, used in rotation
// Of the product that stands for the output head's: an adaptive softmax's have as many multiply-adds together.
int64_t HeadColumns(const ModelOptions& model) { return std::llround(HeadProducts(model) / model.d_model); }

constexpr int64_t kRowGrain = 16;  // as kernels/linear.h splits rows

ConstTokens Offsets(const std::vector<int32_t>& offsets) {
  return {offsets.data(), static_cast<int64_t>(offsets.size())};
}

}  // namespace

DeviceGemmLimit::DeviceGemmLimit(cuda::LaunchDevice& device, std::vector<cuda::MatmulArgs> products)
    : device_(device), products_(std::move(products)) {
  HADAL_CHECK(!products_.empty());
  for (const cuda::MatmulArgs& product : products_)
    flops_ += 2.0 * static_cast<double>(product.count * product.m * product.n * product.k);
  Record();
}

void DeviceGemmLimit::LaunchAll() {
  for (const cuda::MatmulArgs& product : products_) device_.Multiply(product);
}

void DeviceGemmLimit::Record() {
  if (device_.FreeBytes() < GraphCache::kKeepFreeBytes) return;
  device_.BeginCapture();
  LaunchAll();
  absl::StatusOr<std::unique_ptr<DeviceGraph>> graph = device_.EndCapture();
  if (!graph.ok()) return;
  graph_ = *std::move(graph);
  ways_.emplace_back("one graph");
}

GemmLimitTimes DeviceGemmLimit::Run(size_t way) {
  HADAL_CHECK_LT(way, ways_.size());
  device_.Synchronize();
  const Stopwatch watch;
  if (way == 0) {
    LaunchAll();
  } else {
    device_.Launch(*graph_);
  }
  device_.Synchronize();
  return {.seconds = watch.Seconds()};
}

struct HostGemmLimit::Attentions {
  Attentions(const ModelOptions& options, const PackedBatch& batch, const Stream& stream)
      : encoder({Offsets(batch.source_offsets), Offsets(batch.source_offsets), options.heads, false},
                options.d_model / options.heads, 3 * options.d_model, 3 * options.d_model, stream),
        decoder({Offsets(batch.target_offsets), Offsets(batch.target_offsets), options.heads, true},
                options.d_model / options.heads, 3 * options.d_model, 3 * options.d_model, stream),
        cross({Offsets(batch.target_offsets), Offsets(batch.source_offsets), options.heads, false},
              options.d_model / options.heads, options.d_model, 2 * options.d_model, stream) {}

  AttentionProducts encoder, decoder, cross;
};

HostGemmLimit::HostGemmLimit(const ModelPlan& plan, const PipelineLayout& pipeline, int rank,
                             std::span<const PackedBatch> batches, const Stream& stream)
    : plan_(plan), pipeline_(pipeline), rank_(rank), batches_(batches), stream_(stream) {
  for (const PackedBatch& batch : batches) {
    attentions_.push_back(std::make_unique<Attentions>(plan.options, batch, stream));
    const Attentions& a = *attentions_.back();
    score_floats_ =
        std::max({score_floats_, a.encoder.score_floats(), a.decoder.score_floats(), a.cross.score_floats()});
  }
}

HostGemmLimit::~HostGemmLimit() = default;

absl::StatusOr<std::unique_ptr<HostGemmLimit>> HostGemmLimit::Create(const ModelPlan& plan,
                                                                     const PipelineLayout& pipeline, int rank,
                                                                     std::span<const PackedBatch> batches,
                                                                     const Stream& stream) {
  std::unique_ptr<HostGemmLimit> limit(new HostGemmLimit(plan, pipeline, rank, batches, stream));
  ArenaLayout layout;
  limit->LayOut(layout);
  HADAL_ASSIGN_OR_RETURN(limit->arena_, Arena::Allocate(layout));
  limit->weights_ = limit->arena_.Get<float>(limit->weight_slice_);
  limit->gradients_ = limit->arena_.Get<float>(limit->gradient_slice_);
  limit->activations_ = limit->arena_.Get<float>(limit->activation_slice_);
  limit->scores_ = limit->arena_.Get<float>(limit->score_slice_);
  // Values stay finite after many gradient accumulations. Zeros would run at the same speed, denormals would not.
  const int64_t weights = limit->weight_slice_.bytes / static_cast<int64_t>(sizeof(float));
  for (int64_t i = 0; i < weights; ++i) limit->weights_[i] = 0.01f * static_cast<float>(1 + i % 7);
  const int64_t inputs = kBuffers * limit->activation_floats_;
  for (int64_t i = 0; i < inputs; ++i) limit->activations_[i] = 0.001f * static_cast<float>(1 + i % 5);
  return limit;
}

void HostGemmLimit::LayOut(ArenaLayout& layout) {
  weight_offset_.assign(plan_.sublayers.size(), -1);
  int64_t weights = 0;
  for (int c = 0; c < pipeline_.shape.chunks; ++c) {
    for (int32_t s = pipeline_.first_sublayer(rank_, c); s < pipeline_.last_sublayer(rank_, c); ++s) {
      weight_offset_[s] = weights;
      const SublayerRecord& record = plan_.sublayers[s];
      for (int32_t p = record.first_parameter; p < record.first_parameter + record.parameters; ++p) {
        if (p != record.table) weights += plan_.parameters[p].elements();
      }
      if (record.kind == SublayerKind::kOutputHead) weights += HeadColumns(plan_.options) * plan_.options.d_model;
    }
  }
  const ModelOptions& model = plan_.options;
  const int64_t rows = std::max(pipeline_.capacity.source_rows, pipeline_.capacity.target_rows);
  activation_floats_ =
      std::max(rows * std::max<int64_t>(3 * model.d_model, (model.feed_forward_products() - 1) * int64_t{model.d_ff}),
               Workspace::LogitRows(DeviceKind::kCpu, plan_) * static_cast<int64_t>(model.target_vocabulary));
  weight_slice_ = layout.Reserve<float>("weights", weights);
  gradient_slice_ = layout.Reserve<float>("gradients", weights);
  activation_slice_ = layout.Reserve<float>("activations", 2 * kBuffers * activation_floats_);
  score_slice_ = layout.Reserve<float>("workspace", 2 * score_floats_);
}

float* HostGemmLimit::NextInput() { return activations_ + next_input_++ % kBuffers * activation_floats_; }

float* HostGemmLimit::NextOutput() {
  return activations_ + (kBuffers + next_output_++ % kBuffers) * activation_floats_;
}

void HostGemmLimit::Product(char transpose_a, char transpose_b, const float* a, const float* b, float beta, float* c,
                            int64_t rows, int64_t columns, int64_t depth) {
  flops_ += 2.0 * static_cast<double>(rows * columns * depth);
  const int64_t a_stride = transpose_a == 'N' ? depth : rows;
  const int64_t b_stride = transpose_b == 'N' ? columns : depth;
  const auto multiply = [&](int64_t begin, int64_t end) {
    const float* a_rows = transpose_a == 'N' ? a + begin * a_stride : a + begin;
    const dnnl_status_t status = dnnl_sgemm(transpose_a, transpose_b, end - begin, columns, depth, 1.0f, a_rows,
                                            a_stride, b, b_stride, beta, c + begin * columns, columns);
    HADAL_CHECK_EQ(status, dnnl_success);
  };
  if (threading_ == ProductThreading::kLibrary) return multiply(0, rows);
  stream_.ForRanges(rows, kRowGrain, multiply);
}

void HostGemmLimit::Linear(Half half, int64_t rows, int64_t in, int64_t out, int64_t weight) {
  if (half == Half::kForward) {
    return Product('N', 'T', NextInput(), weights_ + weight, 0, NextOutput(), rows, out, in);
  }
  const float* dy = NextInput();
  Product('N', 'N', dy, weights_ + weight, 0, NextOutput(), rows, in, out);
  Product('T', 'N', dy, NextInput(), 1, gradients_ + weight, out, in, rows);
}

void HostGemmLimit::Head(int64_t rows, int64_t weight) {
  const int64_t vocabulary = HeadColumns(plan_.options), d = plan_.options.d_model;
  const int64_t most_rows = Workspace::LogitRows(DeviceKind::kCpu, plan_);
  for (int64_t first = 0; first < rows; first += most_rows) {
    const int64_t block = std::min(most_rows, rows - first);
    Linear(Half::kForward, block, d, vocabulary, weight);
    Linear(Half::kBackward, block, d, vocabulary, weight);
  }
}

void HostGemmLimit::Attention(Half half, AttentionProducts& products, bool cross) {
  const Stopwatch watch;
  const int64_t d = plan_.options.d_model;
  float *queries = NextInput(), *keys = cross ? NextInput() : queries + d;
  float *query_gradients = NextOutput(), *key_gradients = cross ? NextOutput() : query_gradients + d;
  const AttentionOperands operands{.q = queries,
                                   .k = keys,
                                   .v = keys + d,
                                   .d_output = NextInput(),
                                   .scores = scores_,
                                   .d_scores = scores_ + score_floats_,
                                   .output = NextOutput(),
                                   .d_q = query_gradients,
                                   .d_k = key_gradients,
                                   .d_v = key_gradients + d};
  if (half == Half::kForward) {
    products.Forward(threading_, operands);
    flops_ += products.forward_flops();
  } else {
    products.Backward(threading_, operands);
    flops_ += products.backward_flops();
  }
  attention_seconds_ += watch.Seconds();
}

void HostGemmLimit::RunSublayer(int32_t sublayer, size_t batch, Half half) {
  const SublayerRecord& record = plan_.sublayers[sublayer];
  const int64_t d = plan_.options.d_model, d_ff = plan_.options.d_ff, products = plan_.options.feed_forward_products();
  const int64_t source = batches_[batch].source_rows(), target = batches_[batch].target_rows();
  const int64_t rows = record.stack == Stack::kEncoder ? source : target;
  const int64_t weight = weight_offset_[sublayer];
  Attentions& attentions = *attentions_[batch];
  switch (record.kind) {
    case SublayerKind::kSourceEmbedding:
    case SublayerKind::kTargetEmbedding:
      return;
    case SublayerKind::kSelfAttention:
      Linear(half, rows, d, 3 * d, weight);
      Attention(half, record.stack == Stack::kEncoder ? attentions.encoder : attentions.decoder, /*cross=*/false);
      return Linear(half, rows, d, d, weight + 3 * d * d);
    case SublayerKind::kCrossAttention:
      Linear(half, target, d, d, weight);
      Linear(half, source, d, 2 * d, weight + d * d);
      Attention(half, attentions.cross, /*cross=*/true);
      return Linear(half, target, d, d, weight + 3 * d * d);
    case SublayerKind::kFeedForward:
      Linear(half, rows, d, (products - 1) * d_ff, weight);
      return Linear(half, rows, d_ff, d, weight + (products - 1) * d * d_ff);
    case SublayerKind::kOutputHead:
      if (half == Half::kForward) Head(target, weight);  // forward and backward, as in the step
      return;
  }
}

void HostGemmLimit::RunChunk(int chunk, size_t batch, Half half) {
  const int32_t first = pipeline_.first_sublayer(rank_, chunk), last = pipeline_.last_sublayer(rank_, chunk);
  if (half == Half::kForward) {
    for (int32_t s = first; s < last; ++s) RunSublayer(s, batch, half);
    return;
  }
  const int32_t segment = pipeline_.recompute_every > 0 ? pipeline_.recompute_every : last - first;
  for (int32_t end = last; end > first; end -= segment) {
    const int32_t begin = std::max(first, end - segment);
    for (int32_t s = begin; pipeline_.recompute_every > 0 && s < end; ++s) {
      if (plan_.sublayers[s].kind != SublayerKind::kOutputHead) RunSublayer(s, batch, Half::kForward);
    }
    for (int32_t s = end - 1; s >= begin; --s) RunSublayer(s, batch, half);
  }
}

GemmLimitTimes HostGemmLimit::Run(size_t way) {
  const auto threading = static_cast<ProductThreading>(way);
  threading_ = threading;
  flops_ = attention_seconds_ = 0;
  next_input_ = next_output_ = 0;
  const int before = omp_get_max_threads();
  omp_set_num_threads(threading == ProductThreading::kLibrary ? stream_.threads() : 1);
  const Stopwatch watch;
  for (size_t b = 0; b < batches_.size(); ++b) {
    for (int c = 0; c < pipeline_.shape.chunks; ++c) RunChunk(c, b, Half::kForward);
    for (int c = pipeline_.shape.chunks - 1; c >= 0; --c) RunChunk(c, b, Half::kBackward);
  }
  const GemmLimitTimes times{watch.Seconds(), attention_seconds_};
  omp_set_num_threads(before);
  return times;
}

}  // namespace hadal
