#include "tests/kernels/kernel_accesses.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <utility>

#include "kernels/cuda/adam.h"
#include "kernels/cuda/add.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/cached_attention.h"
#include "kernels/cuda/convert.h"
#include "kernels/cuda/cross_entropy.h"
#include "kernels/cuda/embedding.h"
#include "kernels/cuda/executor.h"
#include "kernels/cuda/head_scale.h"
#include "kernels/cuda/linear_epilogue.h"
#include "kernels/cuda/residual_norm.h"
#include "kernels/cuda/scatter_rows.h"
#include "kernels/cuda/shift_scale.h"
#include "kernels/cuda/sum_of_squares.h"
#include "kernels/cuda/top_candidates.h"
#include "kernels/cuda/weighted_sum.h"
#include "runtime/check.h"

namespace hadal::testing {
namespace {

using cuda::DeviceMatrix;
using cuda::DevicePointer;
using cuda::StreamHandle;

constexpr int64_t kWidth = 512, kInnerWidth = 2048, kWords = 32000;

template <typename T>
constexpr const char* kNameOf = std::is_same_v<T, float> ? "float" : "BFloat16";

// Device memory for arguments, and the launches counted so far.
class AccessLab {
 public:
  AccessLab() { executor_.CountAccesses(&counter_); }

  template <typename T>
  DevicePointer<T> Vector(const std::vector<T>& values) {
    T* data = static_cast<T*>(executor_.Allocate(values.size() * sizeof(T)));
    std::copy(values.begin(), values.end(), data);
    return data;
  }
  template <typename T>
  DevicePointer<T> Zeros(int64_t size) {
    return Vector(std::vector<T>(size));
  }
  template <typename T>
  DeviceMatrix<T> Matrix(int64_t rows, int64_t width) {
    return {Zeros<T>(rows * width), width};
  }
  cuda::DeviceDropout Dropout() {
    return {Vector<cuda::RandomPosition>({{1, 2, 3, 4}}), 0, 6554, 65536.0f / (65536 - 6554)};
  }

  // Runs `launch`, which launches a kernel for each of `kernels`.
  void Count(const std::string& shape, const std::vector<std::string>& kernels,
             const std::function<void(StreamHandle)>& launch) {
    const size_t before = counter_.launches().size();
    launch(executor_.stream());
    HADAL_CHECK_EQ(counter_.launches().size(), before + kernels.size());
    for (size_t i = 0; i < kernels.size(); ++i) {
      counted_.push_back({kernels[i], shape, counter_.launches()[before + i]});
    }
  }
  std::vector<KernelAccesses> counted() && { return std::move(counted_); }

 private:
  cuda::Executor executor_{/*seed=*/1};
  cuda::AccessCounter counter_;
  std::vector<KernelAccesses> counted_;
};

std::string Named(const char* kernel, std::initializer_list<std::string> arguments) {
  std::string name = kernel;
  for (const std::string& argument : arguments) name += (&argument == arguments.begin() ? "<" : ", ") + argument;
  return name + ">";
}

template <typename Residual, typename Compute>
void CountResidualNorm(AccessLab& lab) {
  constexpr int64_t kRows = 64;
  const DevicePointer<float> numbers = lab.Zeros<float>(kWidth), of_rows = lab.Zeros<float>(kRows);
  const std::string types = std::string(kNameOf<Residual>) + ", " + kNameOf<Compute>;
  cuda::ResidualNormForwardArgs<Residual, Compute> forward = {.rows = kRows, .width = kWidth};
  forward.residual = forward.sum = lab.Matrix<Residual>(kRows, kWidth);
  forward.branch = lab.Matrix<Compute>(kRows, kWidth), forward.normed = lab.Matrix<Compute>(kRows, kWidth);
  forward.bias = forward.scale = forward.shift = numbers;
  forward.mean = forward.rstd = of_rows, forward.dropout = lab.Dropout();
  lab.Count("64 x 512", {Named("ResidualNormForwardKernel", {types})},
            [&](StreamHandle stream) { cuda::ResidualNormForward(stream, forward); });

  cuda::ResidualNormBackwardArgs<Residual, Compute> backward = {.rows = kRows, .width = kWidth};
  backward.d_normed = forward.branch, backward.sum = forward.sum,
  backward.d_sum = backward.d_residual = lab.Matrix<Residual>(kRows, kWidth);
  backward.d_branch = forward.normed, backward.mean = backward.rstd = of_rows, backward.dropout = forward.dropout;
  backward.scale = backward.d_bias = backward.d_scale = backward.d_shift = numbers;
  backward.partials = lab.Zeros<float>(cuda::ResidualNormPartials(kRows, kWidth));
  lab.Count("64 x 512", {Named("ResidualNormBackwardKernel", {types}), "MergeColumnSumsKernel"},
            [&](StreamHandle stream) { cuda::ResidualNormBackward(stream, backward); });
}

template <typename T>
void CountAttention(AccessLab& lab, int32_t head_width) {
  // Two sentences; q, k and v as a fused projection leaves them.
  const std::vector<int32_t> offsets = {0, 70, 103};
  const int64_t rows = offsets.back();
  const int32_t heads = static_cast<int32_t>(kWidth) / head_width;
  const DeviceMatrix<T> qkv = lab.Matrix<T>(rows, 3 * kWidth), d_qkv = lab.Matrix<T>(rows, 3 * kWidth);
  const auto part = [](const DeviceMatrix<T>& of, int64_t i) {
    return DeviceMatrix<T>(of.data + i * kWidth, of.stride);
  };
  const cuda::AttentionTiles tiles = cuda::CutIntoTiles(offsets, offsets);
  const DevicePointer<cuda::AttentionTile> query_tiles = lab.Vector(tiles.of_queries),
                                           key_tiles = lab.Vector(tiles.of_keys);
  const auto tile_count = static_cast<int64_t>(tiles.of_queries.size());
  const cuda::AttentionShape shape = {heads, head_width, /*causal=*/false};
  const cuda::DeviceDropout dropout = lab.Dropout();
  const DeviceMatrix<T> output = lab.Matrix<T>(rows, kWidth);
  const DeviceMatrix<float> log_sum_exp = lab.Matrix<float>(heads, rows),
                            row_terms = lab.Matrix<float>(2 * heads, rows);

  const bool tensor = std::is_same_v<T, BFloat16>;
  const auto named = [&](const char* on_tensor_cores, const char* plain) {
    const std::string width = std::to_string(head_width);
    return tensor ? Named(on_tensor_cores, {width}) : Named(plain, {"float", width});
  };
  const std::string text = "70 + 33 tokens, " + std::to_string(heads) + " heads";
  lab.Count(text, {named("TensorForwardKernel", "AttentionForwardKernel")}, [&](StreamHandle stream) {
    cuda::AttentionForward<T>(stream, {.shape = shape,
                                       .query_tiles = query_tiles,
                                       .query_tile_capacity = tile_count,
                                       .q = part(qkv, 0),
                                       .k = part(qkv, 1),
                                       .v = part(qkv, 2),
                                       .dropout = dropout,
                                       .output = output,
                                       .log_sum_exp = log_sum_exp});
  });
  lab.Count(
      text,
      {named("TensorQueryKernel", "QueryGradientKernel"), named("TensorKeyValueKernel", "KeyValueGradientKernel")},
      [&](StreamHandle stream) {
        cuda::AttentionBackward<T>(stream, {.shape = shape,
                                            .query_tiles = query_tiles,
                                            .key_tiles = key_tiles,
                                            .query_tile_capacity = tile_count,
                                            .key_tile_capacity = tile_count,
                                            .q = part(qkv, 0),
                                            .k = part(qkv, 1),
                                            .v = part(qkv, 2),
                                            .log_sum_exp = log_sum_exp,
                                            .d_output = output,
                                            .dropout = dropout,
                                            .d_q = part(d_qkv, 0),
                                            .d_k = part(d_qkv, 1),
                                            .d_v = part(d_qkv, 2),
                                            .row_terms = row_terms});
      });
}

template <typename T>
void CountCachedAttention(AccessLab& lab, int64_t head_width) {
  constexpr int64_t kRows = 2, kLength = 40;
  cuda::CachedAttentionArgs<T> args = {.rows = kRows, .heads = kWidth / head_width, .head_width = head_width};
  args.q = args.output = lab.Matrix<T>(kRows, kWidth), args.cache = lab.Matrix<T>(kRows * kLength, 2 * kWidth);
  std::vector<int32_t> index(kRows * kLength);
  for (int64_t i = 0; i < kRows * kLength; ++i) index[i] = static_cast<int32_t>(i % kLength * kRows + i / kLength);
  args.index = lab.Vector(index), args.index_stride = kLength;
  args.lengths = lab.Vector(std::vector<int32_t>(kRows, kLength));
  lab.Count("2 x 40 positions, " + std::to_string(args.heads) + " heads",
            {Named("CachedAttentionKernel", {kNameOf<T>})},
            [&](StreamHandle stream) { cuda::CachedAttention<T>(stream, args); });
}

template <typename T>
void CountRowsBesideProducts(AccessLab& lab) {
  constexpr int64_t kRows = 64;
  const DeviceMatrix<T> x = lab.Matrix<T>(kRows, kInnerWidth), y = lab.Matrix<T>(kRows, kInnerWidth);
  const DevicePointer<T> bias = lab.Zeros<T>(kInnerWidth);
  const DevicePointer<float> sums = lab.Zeros<float>(kInnerWidth), partials = lab.Zeros<float>(2 * kInnerWidth);
  const std::string shape = "64 x 2048", type = kNameOf<T>;
  lab.Count(shape, {Named("BiasRowsKernel", {type})}, [&](StreamHandle stream) {
    cuda::BiasRows<T>(stream, {.rows = kRows, .width = kInnerWidth, .bias = bias, .relu = true, .y = y});
  });
  const cuda::DeviceDropout dropout = lab.Dropout();
  lab.Count(shape, {Named("DropoutRowsKernel", {type})}, [&](StreamHandle stream) {
    cuda::DropoutRows<T>(stream, {.rows = kRows, .width = kInnerWidth, .dropout = dropout, .y = y});
  });
  lab.Count(shape, {Named("ReluMaskKernel", {type})}, [&](StreamHandle stream) {
    cuda::ReluMask<T>(stream, {.rows = kRows, .width = kInnerWidth, .relu_output = x, .dx = y});
  });
  lab.Count(shape, {Named("ReluMaskSumsKernel", {type}), "MergeColumnsKernel"}, [&](StreamHandle stream) {
    cuda::ReluMaskSums<T>(
        stream, {.rows = kRows, .width = kInnerWidth, .relu_output = x, .dx = y, .sums = sums, .partials = partials});
  });
  lab.Count(shape, {Named("ColumnSumsKernel", {type}), "MergeColumnsKernel"}, [&](StreamHandle stream) {
    cuda::ColumnSums<T>(stream, {.rows = kRows, .width = kInnerWidth, .x = x, .sums = sums, .partials = partials});
  });
}

template <typename T>
void CountEnds(AccessLab& lab) {
  const std::string type = kNameOf<T>;
  constexpr int64_t kRows = 16;
  cuda::CrossEntropyArgs<T> loss = {.rows = 2, .vocabulary = kWords, .label_smoothing = 0.1f};
  loss.logits = lab.Matrix<T>(2, kWords), loss.targets = lab.Zeros<int32_t>(2);
  loss.gradient_scale = lab.Zeros<float>(1), loss.loss = loss.nll = lab.Zeros<float>(2);
  lab.Count("2 x 32000", {Named("CrossEntropyKernel", {type})},
            [&](StreamHandle stream) { cuda::CrossEntropy<T>(stream, loss); });

  std::vector<int32_t> tokens(kRows), places(kRows);
  for (int32_t i = 0; i < kRows; ++i) tokens[i] = i % 5, places[i] = i;
  cuda::EmbeddingForwardArgs<T, T> forward = {.rows = kRows, .width = kWidth};
  forward.tokens = lab.Vector(tokens), forward.row_positions = lab.Vector(places), forward.dropout = lab.Dropout();
  forward.table = lab.Matrix<T>(5, kWidth), forward.positions = lab.Matrix<float>(kRows, kWidth);
  forward.x = lab.Matrix<T>(kRows, kWidth);
  lab.Count("16 x 512", {Named("EmbeddingForwardKernel", {type})},
            [&](StreamHandle stream) { cuda::EmbeddingForward(stream, forward); });
  const cuda::TokenGroups groups = cuda::GroupRowsByToken(tokens);
  cuda::EmbeddingBackwardArgs<T> backward = {.max_groups = kRows, .width = kWidth};
  backward.group_count = lab.Vector<int32_t>({static_cast<int32_t>(groups.tokens.size())});
  backward.group_starts = lab.Vector(groups.starts), backward.group_tokens = lab.Vector(groups.tokens);
  backward.sorted_rows = lab.Vector(groups.sorted_rows), backward.dx = forward.x, backward.dropout = forward.dropout;
  backward.d_table = lab.Matrix<float>(5, kWidth);
  lab.Count("16 x 512, 5 words", {Named("EmbeddingBackwardKernel", {type})},
            [&](StreamHandle stream) { cuda::EmbeddingBackward(stream, backward); });
}

void CountOptimizer(AccessLab& lab) {
  constexpr int64_t kSize = 8192;
  const DevicePointer<float> a = lab.Zeros<float>(kSize), b = lab.Zeros<float>(kSize);
  const DevicePointer<BFloat16> rounded = lab.Zeros<BFloat16>(kSize);
  const DevicePointer<cuda::AdamScalars> scalars = lab.Vector<cuda::AdamScalars>({{}});
  const DevicePointer<int32_t> non_finite = lab.Zeros<int32_t>(1);
  lab.Count("8192", {"AdamKernel"}, [&](StreamHandle stream) {
    cuda::AdamStep(stream, {.size = kSize,
                            .parameter = a,
                            .gradient = b,
                            .first_moment = lab.Zeros<float>(kSize),
                            .second_moment = lab.Zeros<float>(kSize),
                            .rounded = rounded,
                            .scalars = scalars,
                            .non_finite = non_finite});
  });
  lab.Count("8192", {"AddKernel"},
            [&](StreamHandle stream) { cuda::Add(stream, {.size = kSize, .sum = a, .values = b}); });
  const DevicePointer<cuda::SquaresRange> ranges = lab.Vector<cuda::SquaresRange>({{0, kSize}});
  lab.Count("8192", {"SquaresOfChunksKernel", "SumChunksKernel"}, [&](StreamHandle stream) {
    cuda::SumOfSquares(stream, {.x = a,
                                .slices = 1,
                                .ranges = ranges,
                                .max_slice_size = kSize,
                                .partials = lab.Zeros<double>(1),
                                .sums = lab.Zeros<double>(1)});
  });
}

void CountRest(AccessLab& lab) {
  constexpr int64_t kRows = 64, kTerms = 3;
  const DeviceMatrix<float> wide = lab.Matrix<float>(kTerms * kRows, kWidth);
  const DeviceMatrix<BFloat16> narrow = lab.Matrix<BFloat16>(kTerms * kRows, kWidth),
                               other = lab.Matrix<BFloat16>(kRows, kWidth);
  const DevicePointer<float> numbers = lab.Zeros<float>(64), partials = lab.Zeros<float>(64);
  const std::string shape = "64 x 512";
  lab.Count(shape, {"ConvertKernel<float, BFloat16>"}, [&](StreamHandle stream) {
    cuda::Convert<float, BFloat16>(stream, {.rows = kRows, .width = kWidth, .from = wide, .to = narrow});
  });
  lab.Count(shape, {"ConvertKernel<BFloat16, float>"}, [&](StreamHandle stream) {
    cuda::Convert<BFloat16, float>(stream, {.rows = kRows, .width = kWidth, .from = narrow, .to = wide});
  });
  lab.Count(shape, {"HeadScaleKernel<BFloat16>"}, [&](StreamHandle stream) {
    cuda::HeadScaleForward<BFloat16>(
        stream, {.rows = kRows, .heads = 8, .head_width = 64, .x = narrow, .gain = numbers, .y = other});
  });
  lab.Count(shape, {"HeadScaleGradientKernel<BFloat16>", "HeadScaleGainKernel<BFloat16>"}, [&](StreamHandle stream) {
    cuda::HeadScaleBackwardArgs<BFloat16> args = {.rows = kRows, .heads = 8, .head_width = 64};
    args.dy = narrow, args.x = args.dx = other, args.gain = args.d_gain = numbers, args.partials = partials;
    cuda::HeadScaleBackward<BFloat16>(stream, args);
  });
  lab.Count(shape, {"ShiftScale ForwardKernel<BFloat16, BFloat16>"}, [&](StreamHandle stream) {
    cuda::ShiftScaleForward<BFloat16, BFloat16>(
        stream, {.rows = kRows, .width = kWidth, .x = narrow, .shift = numbers, .scale = numbers, .y = other});
  });
  lab.Count(shape, {"ShiftScale BackwardKernel<BFloat16, BFloat16>", "ShiftScale ScalarsKernel"},
            [&](StreamHandle stream) {
              cuda::ShiftScaleBackwardArgs<BFloat16, BFloat16> args = {.rows = kRows, .width = kWidth};
              args.dy = narrow, args.x = args.dx = other,
              args.shift = args.scale = args.d_shift = args.d_scale = numbers, args.partials = partials;
              cuda::ShiftScaleBackward<BFloat16, BFloat16>(stream, args);
            });
  lab.Count("3 terms, 64 x 512", {"WeightedSumKernel<BFloat16, BFloat16>"}, [&](StreamHandle stream) {
    cuda::WeightedSumForward<BFloat16, BFloat16>(
        stream, {.rows = kRows, .width = kWidth, .terms = kTerms, .x = narrow, .weights = numbers, .y = other});
  });
  lab.Count("3 terms, 64 x 512", {"TermGradientKernel<BFloat16>", "WeightGradientKernel"}, [&](StreamHandle stream) {
    cuda::WeightedSumBackwardArgs<BFloat16> args = {.rows = kRows, .width = kWidth, .terms = kTerms};
    args.dy = other, args.x = narrow, args.dx = wide, args.weights = args.d_weights = numbers, args.partials = partials;
    cuda::WeightedSumBackward<BFloat16>(stream, args);
  });
  const DevicePointer<int32_t> places = lab.Vector<int32_t>({3, 1, 0, 2});
  lab.Count("4 x 512", {"ScatterRowsKernel<BFloat16>"}, [&](StreamHandle stream) {
    cuda::ScatterRows<BFloat16>(stream, {.rows = 4, .width = kWidth, .x = narrow, .index = places, .y = other});
  });
  cuda::TopCandidatesArgs top = {.rows = 1, .columns = kWords, .count = 4};
  top.logits = lab.Matrix<float>(1, kWords), top.tokens = lab.Matrix<int32_t>(1, 4),
  top.values = lab.Matrix<float>(1, 4);
  top.also_values = numbers, top.best = places;
  lab.Count("1 x 32000, 4 of them", {"TopCandidatesKernel"},
            [&](StreamHandle stream) { cuda::TopCandidates(stream, top); });
}

std::string CountText(const cuda::AccessCount& count) {
  if (count.least == 0) return " - |";
  char text[96];
  std::snprintf(text, sizeof(text), " %ld / %ld = %.2f |", static_cast<long>(count.units),
                static_cast<long>(count.least), count.ratio());
  return text;
}

}  // namespace

std::vector<KernelAccesses> CountKernelAccesses() {
  AccessLab lab;
  CountResidualNorm<BFloat16, BFloat16>(lab);
  CountResidualNorm<float, BFloat16>(lab);
  CountResidualNorm<float, float>(lab);
  for (const int32_t head_width : {64, 128}) CountAttention<BFloat16>(lab, head_width);
  for (const int32_t head_width : {64, 128}) CountAttention<float>(lab, head_width);
  CountEnds<BFloat16>(lab);
  CountEnds<float>(lab);
  CountOptimizer(lab);
  CountRowsBesideProducts<BFloat16>(lab);
  CountRowsBesideProducts<float>(lab);
  CountRest(lab);
  for (const int64_t head_width : {64, 128}) CountCachedAttention<BFloat16>(lab, head_width);
  CountCachedAttention<float>(lab, 64);
  return std::move(lab).counted();
}

std::string AccessTable(const std::vector<KernelAccesses>& kernels) {
  std::string table =
      "# What each CUDA kernel asks of memory, over the least possible\n\n"
      "Counted on the executor ([access_counter.h](access_counter.h) says how, and what is not counted): "
      "`kernel_accesses`, a program of\n"
      "tests/kernels. Loads and stores: sectors of 32 bytes that warps touch in device memory / the least for the "
      "bytes asked. Shared:\n"
      "wavefronts of shared memory / those without a bank conflict. Rows on 16-byte boundaries. Counts, not times.\n\n"
      "| kernel | shape | loads | stores | shared |\n| --- | --- | ---: | ---: | ---: |\n";
  for (const KernelAccesses& of : kernels) {
    table += "| `" + of.kernel + "` | " + of.shape + " |" + CountText(of.counts.loads) + CountText(of.counts.stores) +
             CountText(of.counts.shared) + "\n";
  }
  return table;
}

}  // namespace hadal::testing
