#include "tests/kernels/kernel_accesses.h"

#include <algorithm>
#include <cstdio>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/cached_attention.h"
#include "kernels/cuda/embedding.h"
#include "kernels/cuda/linear_epilogue.h"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/residual_norm.h"
#include "kernels/cuda/sum_of_squares.h"
#include "kernels/cuda/unfold.h"
#include "runtime/check.h"
#include "tests/support/kernel_emulator.h"

namespace hadal::testing {
namespace {

using cuda::DeviceMatrix;
using cuda::DevicePointer;
using cuda::StreamHandle;

constexpr int64_t kWidth = 512, kInnerWidth = 2048, kWords = 32000;

template <typename T>
constexpr const char* kNameOf = std::is_same_v<T, float> ? "float" : "BFloat16";

// Device memory for arguments, and what to do with each case.
class AccessLab {
 public:
  AccessLab(cuda::KernelEmulator& emulator, const std::function<void(const KernelCase&)>& visit)
      : emulator_(emulator), visit_(visit) {}

  template <typename T>
  VectorOf<T> Vector(const std::vector<T>& values) {
    T* data = static_cast<T*>(emulator_.Allocate(values.size() * sizeof(T)));
    std::copy(values.begin(), values.end(), data);
    return {data, std::ssize(values)};
  }
  template <typename T>
  VectorOf<T> Zeros(int64_t size) {
    return Vector(std::vector<T>(size));
  }
  template <typename T>
  MatrixOf<T> Matrix(int64_t rows, int64_t width) {
    return {Zeros<T>(rows * width).data, rows, width};
  }
  hadal::Dropout Dropout() {
    return {.threshold = 6554, .device_position = Vector<RandomPosition>({{1, 2, 3, 4}}).data};
  }

  void Visit(const std::string& shape, const std::vector<std::string>& kernels,
             const std::function<void(StreamHandle)>& launch) {
    visit_({shape, kernels, launch});
  }

 private:
  cuda::KernelEmulator& emulator_;
  const std::function<void(const KernelCase&)>& visit_;
};

std::string Named(const char* kernel, std::initializer_list<std::string> arguments) {
  std::string name = kernel;
  for (const std::string& argument : arguments) name += (&argument == arguments.begin() ? "<" : ", ") + argument;
  return name + ">";
}

template <typename Residual, typename Compute>
void VisitResidualNorm(AccessLab& lab) {
  constexpr int64_t kRows = 64;
  const VectorOf<float> numbers = lab.Zeros<float>(kWidth), of_rows = lab.Zeros<float>(kRows);
  const std::string types = std::string(kNameOf<Residual>) + ", " + kNameOf<Compute>;
  ResidualNormForwardArgs forward;
  forward.residual = forward.sum = lab.Matrix<Residual>(kRows, kWidth);
  forward.branch = lab.Matrix<Compute>(kRows, kWidth), forward.normed = lab.Matrix<Compute>(kRows, kWidth);
  forward.bias = forward.scale = forward.shift = numbers;
  forward.mean = forward.rstd = of_rows, forward.dropout = lab.Dropout();
  lab.Visit("64 x 512", {Named("ResidualNormForwardKernel", {types})},
            [&](StreamHandle stream) { cuda::ResidualNormForward(stream, forward); });
  const MatrixOf<float> second = lab.Matrix<float>(kRows, kWidth);
  ResidualNormForwardArgs streams = forward;
  streams.second = streams.second_sum = second;
  lab.Visit(kSecondStreamShape, {Named("ResidualNormForwardKernel", {types})},
            [&](StreamHandle stream) { cuda::ResidualNormForward(stream, streams); });

  ResidualNormBackwardArgs backward;
  backward.d_normed = forward.branch, backward.sum = forward.sum,
  backward.d_sum = backward.d_residual = lab.Matrix<Residual>(kRows, kWidth);
  backward.d_branch = forward.normed, backward.mean = backward.rstd = of_rows, backward.dropout = forward.dropout;
  backward.scale = backward.d_bias = numbers;
  backward.d_scale = lab.Zeros<float>(kWidth), backward.d_shift = lab.Zeros<float>(kWidth);
  backward.partials = lab.Zeros<float>(cuda::ResidualNormPartials(kRows, kWidth));
  lab.Visit("64 x 512", {Named("ResidualNormBackwardKernel", {types}), "MergeColumnsKernel"},
            [&](StreamHandle stream) { cuda::ResidualNormBackward(stream, backward); });
  backward.d_second = second;
  lab.Visit(kSecondStreamShape, {Named("ResidualNormBackwardKernel", {types}), "MergeColumnsKernel"},
            [&](StreamHandle stream) { cuda::ResidualNormBackward(stream, backward); });
}

// With learned gains, and more blocks of rows than a run of MergeColumn has parts.
void VisitLearnedGains(AccessLab& lab) {
  constexpr int64_t kRows = 144;
  const VectorOf<float> numbers = lab.Zeros<float>(kWidth);
  ResidualNormBackwardArgs args;
  args.d_sum = args.residual = args.branch = args.d_residual = args.d_branch = lab.Matrix<float>(kRows, kWidth);
  args.learned_residual_gain = args.d_learned_residual_gain = numbers;
  args.learned_branch_gain = args.d_learned_branch_gain = numbers;
  args.partials = lab.Zeros<float>(cuda::ResidualNormPartials(kRows, kWidth));
  lab.Visit("144 x 512, learned gains",
            {"ResidualNormBackwardKernel<float, float>", "MergeColumnsKernel", "SumBranchGainKernel"},
            [&](StreamHandle stream) { cuda::ResidualNormBackward(stream, args); });
}

struct AttentionCase {
  int32_t head_width = 0;
  // Of sentences: two, of 70 and 33 tokens.
  std::vector<int32_t> query_offsets = {0, 70, 103}, key_offsets = {0, 70, 103};
  int32_t most_blocks = cuda::AttentionShape().most_blocks;
  bool turned = false;         // rotary positions
  int64_t turned_columns = 0;  // of a head; 0: all
};

// q, k and v as a fused projection leaves them.
template <typename T>
void VisitAttention(AccessLab& lab, const AttentionCase& of) {
  const int32_t head_width = of.head_width;
  const int64_t rows = std::max(of.query_offsets.back(), of.key_offsets.back());
  const int32_t heads = static_cast<int32_t>(kWidth) / head_width;
  const DeviceMatrix<T> qkv = lab.Matrix<T>(rows, 3 * kWidth), d_qkv = lab.Matrix<T>(rows, 3 * kWidth);
  const auto part = [](const DeviceMatrix<T>& of, int64_t i) {
    return DeviceMatrix<T>(of.data + i * kWidth, of.stride);
  };
  const cuda::AttentionTiles tiles = cuda::CutIntoTiles(of.query_offsets, of.key_offsets);
  const DevicePointer<cuda::AttentionTile> query_tiles = lab.Vector(tiles.of_queries),
                                           key_tiles = lab.Vector(tiles.of_keys);
  const auto query_tile_count = static_cast<int64_t>(tiles.of_queries.size());
  cuda::AttentionShape shape = {heads, head_width, /*causal=*/false, of.most_blocks};
  if (of.turned) {
    const int64_t columns = of.turned_columns > 0 ? of.turned_columns : head_width;
    shape.rotary = cuda::DeviceRotaryOf({ConstMatrix(lab.Matrix<float>(rows, columns))});
  }
  const cuda::DeviceDropout dropout = cuda::DeviceDropoutOf(lab.Dropout());
  const DeviceMatrix<T> output = lab.Matrix<T>(rows, kWidth);
  const DeviceMatrix<float> log_sum_exp = lab.Matrix<float>(heads, rows),
                            row_terms = lab.Matrix<float>(2 * heads, rows);

  const bool tensor = std::is_same_v<T, BFloat16>;
  const auto named = [&](const char* on_tensor_cores, const char* plain) {
    const std::string width = std::to_string(head_width);
    return tensor ? Named(on_tensor_cores, {width}) : Named(plain, {"float", width});
  };
  const std::string text =
      "70 + 33 tokens, " + std::to_string(heads) + " heads" + (of.turned ? ", rotary positions" : "");
  lab.Visit(text, {named("TensorForwardKernel", "AttentionForwardKernel")}, [&](StreamHandle stream) {
    cuda::AttentionForward<T>(stream, {.shape = shape,
                                       .query_tiles = query_tiles,
                                       .query_tile_capacity = query_tile_count,
                                       .q = part(qkv, 0),
                                       .k = part(qkv, 1),
                                       .v = part(qkv, 2),
                                       .dropout = dropout,
                                       .output = output,
                                       .log_sum_exp = log_sum_exp});
  });
  lab.Visit(
      text,
      {named("TensorQueryKernel", "QueryGradientKernel"), named("TensorKeyValueKernel", "KeyValueGradientKernel")},
      [&](StreamHandle stream) {
        cuda::AttentionBackward<T>(stream, {.shape = shape,
                                            .query_tiles = query_tiles,
                                            .key_tiles = key_tiles,
                                            .query_tile_capacity = query_tile_count,
                                            .key_tile_capacity = static_cast<int64_t>(tiles.of_keys.size()),
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
void VisitCachedAttention(AccessLab& lab, int64_t head_width, int32_t length) {
  constexpr int64_t kRows = 2;
  cuda::CachedAttentionArgs<T> args = {.rows = kRows, .heads = kWidth / head_width, .head_width = head_width};
  args.q = args.output = lab.Matrix<T>(kRows, kWidth), args.cache = lab.Matrix<T>(kRows * length, 2 * kWidth);
  std::vector<int32_t> index(kRows * length);
  for (int64_t i = 0; i < kRows * length; ++i) index[i] = static_cast<int32_t>(i % length * kRows + i / length);
  args.index = lab.Vector(index), args.index_stride = length;
  args.lengths = lab.Vector(std::vector<int32_t>(kRows, length));
  lab.Visit("2 x " + std::to_string(length) + " positions, " + std::to_string(args.heads) + " heads",
            {Named("CachedAttentionKernel", {kNameOf<T>})},
            [&](StreamHandle stream) { cuda::CachedAttention<T>(stream, args); });
}

template <typename T>
void VisitRowsBesideProducts(AccessLab& lab) {
  constexpr int64_t kRows = 64;
  const DeviceMatrix<T> x = lab.Matrix<T>(kRows, kInnerWidth), y = lab.Matrix<T>(kRows, kInnerWidth);
  const DevicePointer<T> bias = lab.Zeros<T>(kInnerWidth);
  const DevicePointer<float> sums = lab.Zeros<float>(kInnerWidth), partials = lab.Zeros<float>(2 * kInnerWidth);
  const std::string shape = "64 x 2048", type = kNameOf<T>;
  lab.Visit(shape, {Named("BiasRowsKernel", {type})}, [&](StreamHandle stream) {
    cuda::BiasRows<T>(stream, {.rows = kRows, .width = kInnerWidth, .bias = bias, .relu = true, .y = y});
  });
  const cuda::DeviceDropout dropout = cuda::DeviceDropoutOf(lab.Dropout());
  lab.Visit(shape, {Named("DropoutRowsKernel", {type})}, [&](StreamHandle stream) {
    cuda::DropoutRows<T>(stream, {.rows = kRows, .width = kInnerWidth, .dropout = dropout, .y = y});
  });
  lab.Visit(shape, {Named("ReluMaskKernel", {type})}, [&](StreamHandle stream) {
    cuda::ReluMask<T>(stream, {.rows = kRows, .width = kInnerWidth, .relu_output = x, .dx = y});
  });
  lab.Visit(shape, {Named("ReluMaskSumsKernel", {type}), "MergeColumnsKernel"}, [&](StreamHandle stream) {
    cuda::ReluMaskSums<T>(
        stream, {.rows = kRows, .width = kInnerWidth, .relu_output = x, .dx = y, .sums = sums, .partials = partials});
  });
  lab.Visit(shape, {Named("ColumnSumsKernel", {type}), "MergeColumnsKernel"}, [&](StreamHandle stream) {
    cuda::ColumnSums<T>(stream, {.rows = kRows, .width = kInnerWidth, .x = x, .sums = sums, .partials = partials});
  });
}

template <typename T>
void VisitEnds(AccessLab& lab) {
  const std::string type = kNameOf<T>;
  constexpr int64_t kRows = 16;
  CrossEntropyArgs loss = {.logits = lab.Matrix<T>(2, kWords), .label_smoothing = 0.1f};
  loss.device_targets = lab.Zeros<int32_t>(2).data, loss.device_gradient_scale = lab.Zeros<float>(1).data;
  loss.loss = loss.nll = lab.Zeros<float>(2);
  lab.Visit("2 x 32000", {Named("CrossEntropyKernel", {type})},
            [&](StreamHandle stream) { cuda::CrossEntropy(stream, loss); });

  std::vector<int32_t> tokens(kRows), places(kRows);
  for (int32_t i = 0; i < kRows; ++i) tokens[i] = i % 5, places[i] = i;
  EmbeddingForwardArgs forward;
  forward.device_tokens = {.tokens = lab.Vector(tokens).data, .positions = lab.Vector(places).data};
  forward.dropout = lab.Dropout();
  forward.table = lab.Matrix<T>(5, kWidth), forward.positions = lab.Matrix<float>(kRows, kWidth);
  forward.x = lab.Matrix<T>(kRows, kWidth);
  lab.Visit("16 x 512", {Named("EmbeddingForwardKernel", {type})},
            [&](StreamHandle stream) { cuda::EmbeddingForward(stream, forward); });
  const cuda::TokenGroups groups = cuda::GroupRowsByToken(tokens);
  EmbeddingBackwardArgs backward = {.tokens = {tokens.data(), kRows}, .dx = forward.x, .dropout = forward.dropout};
  backward.device_tokens = {.group_count = lab.Vector<int32_t>({static_cast<int32_t>(groups.tokens.size())}).data,
                            .group_starts = lab.Vector(groups.starts).data,
                            .group_tokens = lab.Vector(groups.tokens).data,
                            .sorted_rows = lab.Vector(groups.sorted_rows).data};
  backward.d_table = lab.Matrix<float>(5, kWidth);
  lab.Visit("16 x 512, 5 words", {Named("EmbeddingBackwardKernel", {type})},
            [&](StreamHandle stream) { cuda::EmbeddingBackward(stream, backward); });
  backward.d_positions = lab.Matrix<float>(kRows, kWidth), backward.device_tokens.positions = lab.Vector(places).data;
  lab.Visit("16 x 512, learned positions",
            {Named("EmbeddingBackwardKernel", {type}), Named("PositionGradientKernel", {type})},
            [&](StreamHandle stream) { cuda::EmbeddingBackward(stream, backward); });
}

void VisitOptimizer(AccessLab& lab) {
  constexpr int64_t kSize = 8192;
  const VectorOf<float> a = lab.Zeros<float>(kSize), b = lab.Zeros<float>(kSize);
  AdamArgs step = {.parameter = a, .gradient = b, .rounded = lab.Zeros<BFloat16>(kSize)};
  step.first_moment = lab.Zeros<float>(kSize), step.second_moment = lab.Zeros<float>(kSize);
  const DevicePointer<AdamScalars> scalars = lab.Vector<AdamScalars>({{}});
  lab.Visit("8192", {"AdamKernel"}, [&](StreamHandle stream) { cuda::AdamStep(stream, step, scalars); });
  lab.Visit("8192", {"MomentumKernel"},
            [&](StreamHandle stream) { cuda::MuonMomentum(stream, {.gradient = b, .momentum = a}); });
  lab.Visit("8192", {"MuonStepKernel"}, [&](StreamHandle stream) {
    cuda::MuonStep(stream, {.parameter = a, .direction = b, .rounded = step.rounded});
  });
  const MatrixOf<float> square = lab.Matrix<float>(64, 128);
  const MatrixOf<BFloat16> narrow = lab.Matrix<BFloat16>(64, 128);
  for (const AnyMatrix& to : {AnyMatrix(square), AnyMatrix(narrow)}) {
    const char* const type = to.storage == Storage::kFloat32 ? kNameOf<float> : kNameOf<BFloat16>;
    lab.Visit("64 x 128", {Named("ScaledKernel", {type})},
              [&](StreamHandle stream) { cuda::Scaled(stream, {.from = square, .to = to}); });
    lab.Visit("64 x 64", {Named("PolynomialKernel", {type})}, [&](StreamHandle stream) {
      const ConstMatrix of(square.data, 64, 64);
      cuda::Polynomial(stream, {.a = of, .square = of, .to = {to.data, 64, 64, to.storage}});
    });
  }
  lab.Visit("8192", {"AddKernel"}, [&](StreamHandle stream) { cuda::Add(stream, {.sum = a, .values = b}); });
  const DevicePointer<cuda::SquaresRange> ranges = lab.Vector<cuda::SquaresRange>({{0, kSize}});
  lab.Visit("8192", {"SquaresOfChunksKernel", "SumChunksKernel"}, [&](StreamHandle stream) {
    cuda::SumOfSquares(stream, {.x = a,
                                .slices = 1,
                                .ranges = ranges,
                                .max_slice_size = kSize,
                                .partials = lab.Zeros<double>(1),
                                .sums = lab.Zeros<double>(1)});
  });
}

void VisitRest(AccessLab& lab) {
  constexpr int64_t kRows = 64, kTerms = 3;
  const MatrixOf<float> terms_gradient = lab.Matrix<float>(kTerms * kRows, kWidth),
                        wide = terms_gradient.Rows(0, kRows);
  const MatrixOf<BFloat16> terms = lab.Matrix<BFloat16>(kTerms * kRows, kWidth), narrow = terms.Rows(0, kRows),
                           other = lab.Matrix<BFloat16>(kRows, kWidth);
  const VectorOf<float> numbers = lab.Zeros<float>(64), partials = lab.Zeros<float>(64), gains = {numbers.data, 8},
                        weights = {numbers.data, kTerms};
  const std::string shape = "64 x 512";
  lab.Visit(shape, {"ConvertKernel<float, BFloat16>"},
            [&](StreamHandle stream) { cuda::Convert(stream, {.from = wide, .to = narrow}); });
  lab.Visit(shape, {"ConvertKernel<BFloat16, float>"},
            [&](StreamHandle stream) { cuda::Convert(stream, {.from = narrow, .to = wide}); });
  lab.Visit(shape, {"HeadNormKernel<BFloat16>"},
            [&](StreamHandle stream) { cuda::HeadNormForward(stream, {.x = narrow, .scale = numbers, .y = other}); });
  lab.Visit(shape, {"HeadNormGradientKernel<BFloat16>", "MergeColumnsKernel"}, [&](StreamHandle stream) {
    HeadNormBackwardArgs args = {.dy = narrow, .x = other, .scale = numbers, .dx = other};
    args.d_scale = numbers, args.partials = lab.Zeros<float>(HeadNormPartials(kRows, 64));
    cuda::HeadNormBackward(stream, args);
  });
  lab.Visit(shape, {"HeadScaleKernel<BFloat16>"},
            [&](StreamHandle stream) { cuda::HeadScaleForward(stream, {.x = narrow, .gain = gains, .y = other}); });
  lab.Visit(shape, {"HeadScaleGradientKernel<BFloat16>", "HeadScaleGainKernel"}, [&](StreamHandle stream) {
    HeadScaleBackwardArgs args = {.dy = narrow, .x = other, .gain = gains, .dx = other};
    args.d_gain = gains, args.partials = partials;
    cuda::HeadScaleBackward(stream, args);
  });
  lab.Visit(shape, {"ShiftScale ForwardKernel<BFloat16, BFloat16>"}, [&](StreamHandle stream) {
    cuda::ShiftScaleForward(stream, {.x = narrow, .shift = numbers, .scale = numbers, .y = other});
  });
  lab.Visit(shape, {"ShiftScale BackwardKernel<BFloat16, BFloat16>", "ShiftScale ScalarsKernel"},
            [&](StreamHandle stream) {
              ShiftScaleBackwardArgs args = {.dy = narrow, .x = other, .shift = numbers, .scale = numbers};
              args.dx = other, args.d_shift = args.d_scale = numbers, args.partials = partials;
              cuda::ShiftScaleBackward(stream, args);
            });
  lab.Visit("3 terms, 64 x 512", {"WeightedSumKernel<BFloat16, BFloat16>"}, [&](StreamHandle stream) {
    cuda::WeightedSumForward(stream, {.x = terms, .weights = weights, .y = other});
  });
  lab.Visit("3 terms, 64 x 512", {"TermGradientKernel<BFloat16>", "WeightGradientKernel"}, [&](StreamHandle stream) {
    WeightedSumBackwardArgs args = {.dy = other, .x = terms, .weights = weights, .dx = terms_gradient};
    args.d_weights = weights, args.partials = partials;
    cuda::WeightedSumBackward(stream, args);
  });
  const VectorOf<int32_t> places = lab.Vector<int32_t>({3, 1, 0, 2});
  lab.Visit("4 x 512", {"ScatterRowsKernel<BFloat16>"}, [&](StreamHandle stream) {
    cuda::ScatterRows(stream, {.x = narrow.Rows(0, 4), .device_index = places.data, .y = other});
  });
  TopCandidatesArgs top = {.logits = lab.Matrix<float>(1, kWords), .tokens = lab.Matrix<int32_t>(1, 4)};
  top.values = lab.Matrix<float>(1, 4), top.also_values = numbers, top.best = places;
  lab.Visit("1 x 32000, 4 of them", {"TopCandidatesKernel"},
            [&](StreamHandle stream) { cuda::TopCandidates(stream, top); });
}

// Both convolutions of speech: of 80 features, and of 512 columns in type T.
template <typename T>
void VisitFrontEnd(AccessLab& lab) {
  constexpr int64_t kFeatures = 80, kRows = 8;
  constexpr int32_t kFrames = 2 * kRows;
  const DeviceTaps taps = {lab.Vector(cuda::TapsOfRows({0, kFrames}, {0, kFrames / 2})).data, kRows};
  const MatrixOf<float> frames = lab.Matrix<float>(kFrames, kFeatures), dx = lab.Matrix<float>(kFrames, kWidth);
  const MatrixOf<T> x = lab.Matrix<T>(kFrames, kWidth), u = lab.Matrix<T>(kRows, kConvolutionTaps * kWidth),
                    of_frames = lab.Matrix<T>(kRows, kConvolutionTaps * kFeatures),
                    z = lab.Matrix<T>(kRows, 2 * kWidth);
  const std::string type = kNameOf<T>;
  lab.Visit("8 x 5 x 80", {Named("UnfoldKernel", {"float", type})},
            [&](StreamHandle stream) { cuda::Unfold(stream, {.x = frames, .device_taps = taps, .u = of_frames}); });
  lab.Visit("8 x 5 x 512", {Named("UnfoldKernel", {type, type})},
            [&](StreamHandle stream) { cuda::Unfold(stream, {.x = x, .device_taps = taps, .u = u}); });
  lab.Visit("8 x 5 x 512", {Named("FoldKernel", {type})},
            [&](StreamHandle stream) { cuda::Fold(stream, {.du = u, .device_taps = taps, .dx = dx}); });
  const AnyMatrix value = AnyMatrix(z).Columns(0, kWidth), gate = AnyMatrix(z).Columns(kWidth, kWidth);
  lab.Visit("8 x 512", {Named("GluForwardKernel", {type, type})}, [&](StreamHandle stream) {
    cuda::GluForward(stream, {.value = value, .gate = gate, .y = x.Rows(0, kRows)});
  });
  lab.Visit("8 x 512", {Named("GluBackwardKernel", {type, "float"})}, [&](StreamHandle stream) {
    cuda::GluBackward(stream,
                      {.dy = dx.Rows(0, kRows), .value = value, .gate = gate, .d_value = value, .d_gate = gate});
  });
}

// A gated activation in training.
template <typename T>
void VisitActivation(AccessLab& lab) {
  constexpr int64_t kRows = 8;
  const MatrixOf<T> z = lab.Matrix<T>(kRows, 2 * kWidth), dz = lab.Matrix<T>(kRows, 2 * kWidth);
  const Dropout dropout = lab.Dropout();
  lab.Visit("8 x 512", {Named("ActivationForwardKernel", {kNameOf<T>})}, [&](StreamHandle stream) {
    cuda::ActivationForward(stream, {Activation::kSilu, true, z, dropout, dz.Columns(0, kWidth)});
  });
  lab.Visit("8 x 512", {Named("ActivationBackwardKernel", {kNameOf<T>})}, [&](StreamHandle stream) {
    cuda::ActivationBackward(stream, {Activation::kSilu, true, z, dropout, dz.Columns(kWidth, kWidth), dz});
  });
}

// Four residual streams, in blocks of rows that are full.
void VisitResiduals(AccessLab& lab) {
  constexpr int64_t kRows = 64, kResiduals = 4, kMaps = 24;
  const MatrixOf<float> x = lab.Matrix<float>(kRows, kResiduals * kWidth),
                        y = lab.Matrix<float>(kRows, kResiduals * kWidth), u = lab.Matrix<float>(kRows, kWidth),
                        maps = lab.Matrix<float>(kRows, kMaps), projected = lab.Matrix<float>(kRows, kMaps),
                        d_maps = lab.Matrix<float>(kRows, kMaps);
  const VectorOf<float> gates = lab.Zeros<float>(3), bias = lab.Zeros<float>(kMaps), rstd = lab.Zeros<float>(kRows),
                        d_gates = lab.Zeros<float>(3), d_bias = lab.Zeros<float>(kMaps),
                        partials = lab.Zeros<float>(2 * (kMaps + 3));
  const std::string shape = "64 x 4 x 512";
  HyperReadForwardArgs read = {.x = x, .projected = projected, .gates = gates, .bias = bias};
  read.maps = maps, read.rstd = rstd, read.u = u;
  lab.Visit(shape, {"HyperReadForwardKernel"}, [&](StreamHandle stream) { cuda::HyperReadForward(stream, read); });
  lab.Visit(shape, {"HyperWriteForwardKernel"},
            [&](StreamHandle stream) { cuda::HyperWriteForward(stream, {.x = x, .maps = maps, .f = u, .y = y}); });
  lab.Visit(shape, {"HyperWriteBackwardKernel"}, [&](StreamHandle stream) {
    cuda::HyperWriteBackward(stream, {.dy = y, .x = x, .maps = maps, .f = u, .dx = y, .df = u, .d_maps = d_maps});
  });
  HyperReadBackwardArgs backward = {.du = u, .x = x, .projected = projected, .maps = maps, .rstd = rstd};
  backward.gates = gates, backward.bias = bias, backward.d_maps = d_maps, backward.d_projected = d_maps,
  backward.dx = y;
  backward.d_gates = d_gates, backward.d_bias = d_bias, backward.partials = partials;
  lab.Visit(shape, {"HyperReadBackwardKernel", "MergeColumnsKernel"},
            [&](StreamHandle stream) { cuda::HyperReadBackward(stream, backward); });
  lab.Visit(shape, {"CopyToResidualsKernel"},
            [&](StreamHandle stream) { cuda::CopyToResiduals(stream, {.x = u, .y = y}); });
  lab.Visit(shape, {"SumResidualsKernel"}, [&](StreamHandle stream) { cuda::SumResiduals(stream, {.x = x, .y = u}); });
}

// Readers of the sums of nine blocks, as in the middle of a stack with six sublayers a block.
void VisitBlockReaders(AccessLab& lab) {
  constexpr int64_t kRows = 32, kSources = 9, kReaders = 6;
  const auto matrix = [&](int64_t rows, int64_t columns) { return lab.Matrix<float>(rows, columns); };
  std::vector<SourceReader> readers(kReaders);
  for (SourceReader& reader : readers) {
    reader = {lab.Zeros<float>(kWidth), lab.Zeros<float>(kWidth), lab.Zeros<float>(kWidth), lab.Zeros<float>(kWidth)};
  }
  const MatrixOf<float> x = matrix(kSources * kRows, kWidth), y = matrix(kReaders * kRows, kWidth),
                        logits = matrix(kReaders * kRows, kSources), d_logits = matrix(kReaders * kRows, kSources),
                        statistics = matrix(kReaders * kRows, kReaderStatistics), dx = matrix(kSources * kRows, kWidth),
                        open = matrix(kRows, kWidth), d_open = matrix(kRows, kWidth), of_open = matrix(kRows, kWidth);
  const VectorOf<float> inverse_rms = lab.Zeros<float>(kSources * kRows),
                        partials = lab.Zeros<float>(ReaderPartials(kRows, kWidth, kReaders));
  const std::string shape = "32 x 512, 6 readers of 9", of_one = "32 x 512";
  ReadSourcesForwardArgs read = {.x = x, .readers = readers, .inverse_rms = inverse_rms};
  read.logits = logits, read.statistics = statistics, read.y = y;
  lab.Visit(shape, {"ReadSourcesForwardKernel"}, [&](StreamHandle stream) { cuda::ReadSourcesForward(stream, read); });
  ReadOpenForwardArgs forward = {.open = open, .reader = readers[0]};
  forward.statistics = statistics.Rows(0, kRows), forward.y = of_open;
  lab.Visit(of_one, {"ReadOpenForwardKernel"}, [&](StreamHandle stream) { cuda::ReadOpenForward(stream, forward); });
  ReadOpenBackwardArgs backward = {.dh = y.Rows(0, kRows), .open = open, .reader = readers[0]};
  backward.statistics = forward.statistics, backward.h = of_open, backward.d_open = d_open;
  backward.partials = partials;
  lab.Visit(of_one, {"ReadOpenBackwardKernel", "QueryGradientKernel", "AddQueryGradientKernel"},
            [&](StreamHandle stream) { cuda::ReadOpenBackward(stream, backward); });
  ReadSourcesBackwardArgs of_sources = {.dh = y, .x = x, .readers = readers, .inverse_rms = inverse_rms};
  of_sources.logits = logits, of_sources.statistics = statistics, of_sources.d_logits = d_logits;
  of_sources.dx = dx, of_sources.partials = partials;
  lab.Visit(shape, {"ReadSourcesBackwardKernel", "QueryGradientKernel", "AddQueryGradientKernel"},
            [&](StreamHandle stream) { cuda::ReadSourcesBackward(stream, of_sources); });
}

std::string CountText(const cuda::AccessCount& count) {
  if (count.least == 0) return " - |";
  char text[96];
  std::snprintf(text, sizeof(text), " %ld / %ld = %.2f |", static_cast<long>(count.units),
                static_cast<long>(count.least), count.ratio());
  return text;
}

}  // namespace

void ForEachKernel(cuda::KernelEmulator& emulator, const std::function<void(const KernelCase&)>& visit) {
  AccessLab lab(emulator, visit);
  VisitResidualNorm<BFloat16, BFloat16>(lab);
  VisitResidualNorm<float, BFloat16>(lab);
  VisitResidualNorm<float, float>(lab);
  for (const int32_t head_width : {64, 128}) VisitAttention<BFloat16>(lab, {head_width});
  VisitAttention<BFloat16>(lab, {.head_width = 64, .turned = true});
  VisitAttention<float>(lab, {.head_width = 64, .turned = true});
  for (const int32_t head_width : {64, 128}) VisitAttention<float>(lab, {head_width});
  VisitEnds<BFloat16>(lab);
  VisitEnds<float>(lab);
  VisitOptimizer(lab);
  VisitRowsBesideProducts<BFloat16>(lab);
  VisitRowsBesideProducts<float>(lab);
  VisitRest(lab);
  VisitActivation<BFloat16>(lab);
  VisitActivation<float>(lab);
  VisitFrontEnd<BFloat16>(lab);
  VisitFrontEnd<float>(lab);
  VisitResiduals(lab);
  VisitBlockReaders(lab);
  for (const int64_t head_width : {64, 128}) VisitCachedAttention<BFloat16>(lab, head_width, /*length=*/40);
  VisitCachedAttention<float>(lab, 64, /*length=*/40);
}

void ForEachFurtherCase(cuda::KernelEmulator& emulator, const std::function<void(const KernelCase&)>& visit) {
  AccessLab lab(emulator, visit);
  VisitLearnedGains(lab);
  VisitAttention<BFloat16>(lab, {.head_width = 64, .most_blocks = 1});
  VisitAttention<BFloat16>(lab, {.head_width = 64, .key_offsets = {0, 0, 33}});
  // Queries without a key, and pairs of columns of two threads.
  VisitAttention<float>(lab, {.head_width = 64, .key_offsets = {0, 0, 33}, .turned = true, .turned_columns = 24});
  VisitCachedAttention<float>(lab, 64, /*length=*/200);
}

std::vector<KernelAccesses> CountKernelAccesses() {
  cuda::KernelEmulator emulator(/*seed=*/1);
  cuda::AccessCounter counter;
  emulator.CountAccesses(&counter);
  std::vector<KernelAccesses> counted;
  ForEachKernel(emulator, [&](const KernelCase& each) {
    const size_t before = counter.launches().size();
    each.launch(emulator.stream());
    HADAL_CHECK_EQ(counter.launches().size(), before + each.kernels.size());
    for (size_t i = 0; i < each.kernels.size(); ++i) {
      counted.push_back({each.kernels[i], each.shape, counter.launches()[before + i]});
    }
  });
  return counted;
}

std::string AccessTable(const std::vector<KernelAccesses>& kernels) {
  std::string table =
      "# What each CUDA kernel asks of memory, over the least possible\n\n"
      "Counted on the emulator ([access_counter.h](../../tests/support/access_counter.h) says how, and what is not "
      "counted): "
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
