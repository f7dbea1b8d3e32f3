#include "tools/bench/bench_kernels.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/adam.h"
#include "kernels/add.h"
#include "kernels/convert.h"
#include "kernels/cross_entropy.h"
#include "kernels/embedding.h"
#include "kernels/linear.h"
#include "kernels/residual_norm.h"
#include "kernels/sum_of_squares.h"
#include "runtime/status_macros.h"
#include "tools/bench/kernel_batch.h"

namespace hadal {
namespace {

using enum Traffic;

constexpr int64_t kSentence = 32;  // tokens per sentence, for cases that do not depend on it

// The shape of a measured matrix.
struct Shape {
  int64_t rows, width;
  bool large;
};

KernelCase RowCase(std::string kernel, const Shape& shape, Storage storage, bool has_goal = false) {
  return {.kernel = std::move(kernel),
          .shape = absl::StrCat(shape.rows, " x ", shape.width),
          .storage = storage,
          .large = shape.large,
          .has_goal = has_goal && shape.large};
}

KernelCase ResidualNormForwardCase(const Shape& shape, Storage storage, bool dropout) {
  const auto make = [=](const Stream&, KernelTensors& t, const KernelBatch& batch) {
    const auto [rows, width, large] = shape;
    return ResidualNormForwardArgs{.residual = t.Matrix(kRead, rows, width, storage),
                                   .branch = t.Matrix(kRead, rows, width, storage),
                                   .bias = t.Floats(kRead, width),
                                   .residual_gain = 2,
                                   .dropout = batch.DropoutAt(RandomSite::kResidual, dropout),
                                   .scale = t.Floats(kRead, width),
                                   .shift = t.Floats(kRead, width),
                                   .sum = t.Matrix(kWritten, rows, width, storage),
                                   .normed = t.Matrix(kWritten, rows, width, storage),
                                   .mean = t.Floats(kWritten, rows),
                                   .rstd = t.Floats(kWritten, rows)};
  };
  const char* name = dropout ? "residual_norm forward, dropout" : "residual_norm forward";
  return WithLaunch(RowCase(name, shape, storage, /*has_goal=*/true), {}, ResidualNormForward, make);
}

KernelCase ResidualNormBackwardCase(const Shape& shape, Storage storage, bool dropout) {
  const auto make = [=](const Stream&, KernelTensors& t, const KernelBatch& batch) {
    const auto [rows, width, large] = shape;
    return ResidualNormBackwardArgs{.d_normed = t.Matrix(kRead, rows, width, storage),
                                    .sum = t.Matrix(kRead, rows, width, storage),
                                    .mean = t.Floats(kRead, rows),
                                    .rstd = t.Floats(kRead, rows, TensorValues::kPositive),
                                    .scale = t.Floats(kRead, width),
                                    .residual_gain = 2,
                                    .dropout = batch.DropoutAt(RandomSite::kResidual, dropout),
                                    .d_residual = t.Matrix(kWritten, rows, width, storage),
                                    .d_branch = t.Matrix(kWritten, rows, width, storage),
                                    .d_bias = t.Floats(kUpdated, width),
                                    .d_scale = t.Floats(kUpdated, width),
                                    .d_shift = t.Floats(kUpdated, width),
                                    .partials = t.Floats(kScratch, ResidualNormPartials(rows, width))};
  };
  const char* name = dropout ? "residual_norm backward, dropout" : "residual_norm backward";
  return WithLaunch(RowCase(name, shape, storage, /*has_goal=*/true), {}, ResidualNormBackward, make);
}

KernelCase AdamCase(int64_t elements, bool rounded, bool large) {
  const auto make = [=](const Stream&, KernelTensors& t, const KernelBatch&) {
    AdamArgs args = {.parameter = t.Floats(kUpdated, elements),
                     .gradient = t.Floats(kRead, elements),
                     .first_moment = t.Floats(kUpdated, elements),
                     .second_moment = t.Floats(kUpdated, elements, TensorValues::kPositive),
                     .learning_rate = 1e-6};
    if (rounded) {
      const AnyMatrix copy = t.Matrix(kWritten, 1, elements, Storage::kBFloat16);
      args.rounded = {copy.of<BFloat16>().data, elements};
    }
    return args;
  };
  return WithLaunch({.kernel = rounded ? "adam, bf16 copy" : "adam",
                     .shape = absl::StrCat(elements),
                     .large = large,
                     .has_goal = large,
                     .recordable = false},  // its scalars are copied
                    {}, AdamStep, make);
}

KernelCase CrossEntropyCase(const Shape& shape, Storage storage) {
  const auto make = [=](const Stream&, KernelTensors& t, const KernelBatch& batch) {
    t.Count(static_cast<double>(shape.rows * sizeof(int32_t)));  // the targets
    return CrossEntropyArgs{.logits = t.Matrix(kUpdated, shape.rows, shape.width, storage),
                            .targets = batch.tokens(),
                            .label_smoothing = 0.1f,
                            .gradient_scale = batch.gradient_scale(),
                            .device_targets = batch.device_batch().targets,
                            .device_gradient_scale = batch.device_batch().gradient_scale,
                            .loss = t.Floats(kWritten, shape.rows),
                            .nll = t.Floats(kWritten, shape.rows)};
  };
  return WithLaunch(RowCase("cross_entropy", shape, storage, /*has_goal=*/true), {shape.rows, kSentence, shape.width},
                    CrossEntropy, make);
}

KernelCase EmbeddingForwardCase(const Shape& shape, int64_t vocabulary, Storage storage) {
  const auto make = [=](const Stream&, KernelTensors& t, const KernelBatch& batch) {
    const auto [rows, width, large] = shape;
    t.Count(static_cast<double>(8 * rows + BytesOf(storage) * std::min(rows, vocabulary) * width));
    return EmbeddingForwardArgs{
        .tokens = batch.tokens(),
        .offsets = batch.offsets(),
        .table = t.Matrix(kScratch, vocabulary, width, storage),
        .positions = t.Matrix(kRead, std::min(rows, kSentence), width, Storage::kFloat32).floats(),
        .multiplier = 2,
        .dropout = batch.DropoutAt(RandomSite::kResidual, true),
        .device_tokens = batch.device_batch().target,
        .x = t.Matrix(kWritten, rows, width, storage)};
  };
  return WithLaunch(RowCase("embedding forward, dropout", shape, storage), {shape.rows, kSentence, vocabulary},
                    EmbeddingForward, make);
}

KernelCase EmbeddingBackwardCase(const Shape& shape, int64_t vocabulary, Storage storage) {
  const auto make = [=](const Stream&, KernelTensors& t, const KernelBatch& batch) {
    const auto [rows, width, large] = shape;
    t.Count(static_cast<double>(4 * rows + 8 * std::min(rows, vocabulary) * width));
    return EmbeddingBackwardArgs{.tokens = batch.tokens(),
                                 .dx = t.Matrix(kRead, rows, width, storage),
                                 .multiplier = 2,
                                 .dropout = batch.DropoutAt(RandomSite::kResidual, true),
                                 .device_tokens = batch.device_batch().target,
                                 .d_table = t.Matrix(kScratch, vocabulary, width, Storage::kFloat32).floats()};
  };
  return WithLaunch(RowCase("embedding backward, dropout", shape, storage), {shape.rows, kSentence, vocabulary},
                    EmbeddingBackward, make);
}

KernelCase ReluBackwardCase(const Shape& shape, Storage storage) {
  return WithLaunch(RowCase("relu_backward", shape, storage), {}, ReluBackward,
                    [=](const Stream&, KernelTensors& t, const KernelBatch&) {
                      return ReluBackwardArgs{.relu_output = t.Matrix(kRead, shape.rows, shape.width, storage),
                                              .dx = t.Matrix(kUpdated, shape.rows, shape.width, storage)};
                    });
}

// `storage`: the output's type; the input has the other type.
KernelCase ConvertCase(const Shape& shape, Storage storage) {
  const bool widens = storage == Storage::kFloat32;
  const Storage from = widens ? Storage::kBFloat16 : Storage::kFloat32;
  return WithLaunch(RowCase(widens ? "convert from bf16" : "convert from fp32", shape, storage), {}, Convert,
                    [=](const Stream&, KernelTensors& t, const KernelBatch&) {
                      return ConvertArgs{.from = t.Matrix(kRead, shape.rows, shape.width, from),
                                         .to = t.Matrix(kWritten, shape.rows, shape.width, storage)};
                    });
}

KernelCase AddCase(int64_t elements, bool large) {
  return WithLaunch({.kernel = "add", .shape = absl::StrCat(elements), .large = large}, {}, Add,
                    [=](const Stream&, KernelTensors& t, const KernelBatch&) {
                      return AddArgs{.sum = t.Floats(kUpdated, elements), .values = t.Floats(kRead, elements)};
                    });
}

KernelCase SumOfSquaresCase(int64_t elements, int64_t slice, bool large) {
  const auto prepare = [=](const Stream& stream, KernelTensors& t) -> absl::StatusOr<KernelLaunch> {
    const Vector x = t.Floats(kRead, elements);
    HADAL_RETURN_IF_ERROR(t.status());
    auto slices = std::make_shared<std::vector<SquaresSlice>>();
    for (int64_t first = 0; first < elements; first += slice) {
      slices->push_back({.x = {x.data + first, std::min(slice, elements - first)}, .first = first});
    }
    auto sums = std::make_shared<std::vector<double>>(slices->size());
    return [stream, slices, sums] { SumsOfSquares(stream, {.slices = *slices, .sums = *sums}); };
  };
  return {.kernel = "sum_of_squares",
          .shape = absl::StrCat(elements),
          .large = large,
          .recordable = false,  // the host waits for the sums
          .prepare = prepare};
}

// Number of rows of `row_bytes` in large_bytes.
int64_t LargeRows(const KernelShapes& shapes, int64_t row_bytes) {
  return (shapes.large_bytes + row_bytes - 1) / row_bytes;
}

// The large tensor's shape first, then the model's shapes.
std::vector<Shape> ShapesOf(const KernelShapes& shapes, Storage storage) {
  const int64_t width = shapes.widths.front();
  std::vector<Shape> all = {{LargeRows(shapes, width * BytesOf(storage)), width, true}};
  for (const int64_t rows : shapes.rows) {
    for (const int64_t w : shapes.widths) all.push_back({rows, w, false});
  }
  return all;
}

void AddFlatCases(const KernelShapes& shapes, bool device, std::vector<KernelCase>& cases) {
  const int64_t large = LargeRows(shapes, sizeof(float)), slice = shapes.slice_elements;
  for (const bool is_large : {true, false}) {
    const int64_t elements = is_large ? large : slice;
    cases.push_back(AdamCase(elements, device, is_large));
    cases.push_back(AddCase(elements, is_large));
    cases.push_back(SumOfSquaresCase(elements, slice, is_large));
  }
}

void AddRowCases(const KernelShapes& shapes, Storage storage, bool device, std::vector<KernelCase>& cases) {
  for (const Shape& shape : ShapesOf(shapes, storage)) {
    for (const bool dropout : {false, true}) {
      cases.push_back(ResidualNormForwardCase(shape, storage, dropout));
      cases.push_back(ResidualNormBackwardCase(shape, storage, dropout));
    }
    cases.push_back(EmbeddingForwardCase(shape, shapes.vocabulary, storage));
    cases.push_back(EmbeddingBackwardCase(shape, shapes.vocabulary, storage));
    cases.push_back(ReluBackwardCase(shape, storage));
    if (device) cases.push_back(ConvertCase(shape, storage));
  }
  const int64_t vocabulary = shapes.vocabulary;
  cases.push_back(CrossEntropyCase({LargeRows(shapes, vocabulary * BytesOf(storage)), vocabulary, true}, storage));
  for (const int64_t rows : shapes.rows) cases.push_back(CrossEntropyCase({rows, vocabulary, false}, storage));
}

}  // namespace

std::vector<KernelCase> MemoryBoundCases(const KernelShapes& shapes, const Stream& stream) {
  const bool device = stream.device() != nullptr;
  std::vector<KernelCase> cases;
  if (device) AddRowCases(shapes, Storage::kBFloat16, device, cases);
  AddRowCases(shapes, Storage::kFloat32, device, cases);
  AddFlatCases(shapes, device, cases);
  std::ranges::stable_sort(cases, {}, [](const KernelCase& of) { return std::pair(!of.large, of.kernel); });
  return cases;
}

}  // namespace hadal
