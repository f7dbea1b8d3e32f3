#include "tools/bench/kernel_case.h"

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
using Launch = absl::StatusOr<KernelLaunch>;

constexpr int64_t kSentence = 32;  // tokens per sentence, for cases that do not depend on it

// The shape of a measured matrix.
struct Shape {
  int64_t rows, width;
  bool large;
};

std::string Text(int64_t rows, int64_t width) { return absl::StrCat(rows, " x ", width); }
KernelCase ResidualNormForwardCase(const Shape& shape, Storage storage, bool dropout) {
  const auto prepare = [=](const Stream& stream, KernelTensors& t) -> Launch {
    const auto [rows, width, large] = shape;
    HADAL_ASSIGN_OR_RETURN(const auto batch, KernelBatch::Create(stream, 1, 1, 2));
    const ResidualNormForwardArgs args = {.residual = t.Matrix(kRead, rows, width, storage),
                                          .branch = t.Matrix(kRead, rows, width, storage),
                                          .bias = t.Floats(kRead, width),
                                          .residual_gain = 2,
                                          .dropout = batch->DropoutAt(RandomSite::kResidual, dropout),
                                          .scale = t.Floats(kRead, width),
                                          .shift = t.Floats(kRead, width),
                                          .sum = t.Matrix(kWritten, rows, width, storage),
                                          .normed = t.Matrix(kWritten, rows, width, storage),
                                          .mean = t.Floats(kWritten, rows),
                                          .rstd = t.Floats(kWritten, rows)};
    return OrStatus(t, [stream, args, batch] { ResidualNormForward(stream, args); });
  };
  return {.kernel = absl::StrCat("residual_norm forward", dropout ? ", dropout" : ""),
          .shape = Text(shape.rows, shape.width),
          .storage = storage,
          .large = shape.large,
          .has_goal = shape.large,
          .prepare = prepare};
}

KernelCase ResidualNormBackwardCase(const Shape& shape, Storage storage, bool dropout) {
  const auto prepare = [=](const Stream& stream, KernelTensors& t) -> Launch {
    const auto [rows, width, large] = shape;
    HADAL_ASSIGN_OR_RETURN(const auto batch, KernelBatch::Create(stream, 1, 1, 2));
    const ResidualNormBackwardArgs args = {.d_normed = t.Matrix(kRead, rows, width, storage),
                                           .sum = t.Matrix(kRead, rows, width, storage),
                                           .mean = t.Floats(kRead, rows),
                                           .rstd = t.Floats(kRead, rows, TensorValues::kPositive),
                                           .scale = t.Floats(kRead, width),
                                           .residual_gain = 2,
                                           .dropout = batch->DropoutAt(RandomSite::kResidual, dropout),
                                           .d_residual = t.Matrix(kWritten, rows, width, storage),
                                           .d_branch = t.Matrix(kWritten, rows, width, storage),
                                           .d_bias = t.Floats(kUpdated, width),
                                           .d_scale = t.Floats(kUpdated, width),
                                           .d_shift = t.Floats(kUpdated, width),
                                           .partials = t.Floats(kScratch, ResidualNormPartials(rows, width))};
    return OrStatus(t, [stream, args, batch] { ResidualNormBackward(stream, args); });
  };
  return {.kernel = absl::StrCat("residual_norm backward", dropout ? ", dropout" : ""),
          .shape = Text(shape.rows, shape.width),
          .storage = storage,
          .large = shape.large,
          .has_goal = shape.large,
          .prepare = prepare};
}

KernelCase AdamCase(int64_t elements, bool rounded, bool large) {
  const auto prepare = [=](const Stream& stream, KernelTensors& t) -> Launch {
    AdamArgs args = {.parameter = t.Floats(kUpdated, elements),
                     .gradient = t.Floats(kRead, elements),
                     .first_moment = t.Floats(kUpdated, elements),
                     .second_moment = t.Floats(kUpdated, elements, TensorValues::kPositive),
                     .learning_rate = 1e-6};
    if (rounded) {
      const AnyMatrix copy = t.Matrix(kWritten, 1, elements, Storage::kBFloat16);
      args.rounded = {copy.of<BFloat16>().data, elements};
    }
    return OrStatus(t, [stream, args] { AdamStep(stream, args); });
  };
  return {.kernel = rounded ? "adam, bf16 copy" : "adam",
          .shape = absl::StrCat(elements),
          .large = large,
          .has_goal = large,
          .recordable = false,  // its scalars are copied
          .prepare = prepare};
}

KernelCase CrossEntropyCase(int64_t rows, int64_t vocabulary, Storage storage, bool large) {
  const auto prepare = [=](const Stream& stream, KernelTensors& t) -> Launch {
    HADAL_ASSIGN_OR_RETURN(const auto batch, KernelBatch::Create(stream, rows, kSentence, vocabulary));
    t.Count(static_cast<double>(rows * sizeof(int32_t)));  // the targets
    const CrossEntropyArgs args = {.logits = t.Matrix(kUpdated, rows, vocabulary, storage),
                                   .targets = batch->tokens(),
                                   .label_smoothing = 0.1f,
                                   .gradient_scale = batch->gradient_scale(),
                                   .device_targets = batch->device_batch().targets,
                                   .device_gradient_scale = batch->device_batch().gradient_scale,
                                   .loss = t.Floats(kWritten, rows),
                                   .nll = t.Floats(kWritten, rows)};
    return OrStatus(t, [stream, args, batch] { CrossEntropy(stream, args); });
  };
  return {.kernel = "cross_entropy",
          .shape = Text(rows, vocabulary),
          .storage = storage,
          .large = large,
          .has_goal = large,
          .prepare = prepare};
}

KernelCase EmbeddingForwardCase(const Shape& shape, int64_t vocabulary, Storage storage) {
  const auto prepare = [=](const Stream& stream, KernelTensors& t) -> Launch {
    const auto [rows, width, large] = shape;
    HADAL_ASSIGN_OR_RETURN(const auto batch, KernelBatch::Create(stream, rows, kSentence, vocabulary));
    t.Count(static_cast<double>(8 * rows + BytesOf(storage) * std::min(rows, vocabulary) * width));
    const EmbeddingForwardArgs args = {
        .tokens = batch->tokens(),
        .offsets = batch->offsets(),
        .table = t.Matrix(kScratch, vocabulary, width, storage),
        .positions = t.Matrix(kRead, std::min(rows, kSentence), width, Storage::kFloat32).floats(),
        .multiplier = 2,
        .dropout = batch->DropoutAt(RandomSite::kResidual, true),
        .device_tokens = batch->device_batch().target,
        .x = t.Matrix(kWritten, rows, width, storage)};
    return OrStatus(t, [stream, args, batch] { EmbeddingForward(stream, args); });
  };
  return {.kernel = "embedding forward, dropout",
          .shape = Text(shape.rows, shape.width),
          .storage = storage,
          .large = shape.large,
          .prepare = prepare};
}

KernelCase EmbeddingBackwardCase(const Shape& shape, int64_t vocabulary, Storage storage) {
  const auto prepare = [=](const Stream& stream, KernelTensors& t) -> Launch {
    const auto [rows, width, large] = shape;
    HADAL_ASSIGN_OR_RETURN(const auto batch, KernelBatch::Create(stream, rows, kSentence, vocabulary));
    t.Count(static_cast<double>(4 * rows + 8 * std::min(rows, vocabulary) * width));
    const EmbeddingBackwardArgs args = {.tokens = batch->tokens(),
                                        .dx = t.Matrix(kRead, rows, width, storage),
                                        .multiplier = 2,
                                        .dropout = batch->DropoutAt(RandomSite::kResidual, true),
                                        .device_tokens = batch->device_batch().target,
                                        .d_table = t.Matrix(kScratch, vocabulary, width, Storage::kFloat32).floats()};
    return OrStatus(t, [stream, args, batch] { EmbeddingBackward(stream, args); });
  };
  return {.kernel = "embedding backward, dropout",
          .shape = Text(shape.rows, shape.width),
          .storage = storage,
          .large = shape.large,
          .prepare = prepare};
}

KernelCase ReluBackwardCase(const Shape& shape, Storage storage) {
  const auto prepare = [=](const Stream& stream, KernelTensors& t) -> Launch {
    const ReluBackwardArgs args = {.relu_output = t.Matrix(kRead, shape.rows, shape.width, storage),
                                   .dx = t.Matrix(kUpdated, shape.rows, shape.width, storage)};
    return OrStatus(t, [stream, args] { ReluBackward(stream, args); });
  };
  return {.kernel = "relu_backward",
          .shape = Text(shape.rows, shape.width),
          .storage = storage,
          .large = shape.large,
          .prepare = prepare};
}

// `storage`: the output's type; the input has the other type.
KernelCase ConvertCase(const Shape& shape, Storage storage) {
  const auto prepare = [=](const Stream& stream, KernelTensors& t) -> Launch {
    const Storage from = storage == Storage::kFloat32 ? Storage::kBFloat16 : Storage::kFloat32;
    const ConvertArgs args = {.from = t.Matrix(kRead, shape.rows, shape.width, from),
                              .to = t.Matrix(kWritten, shape.rows, shape.width, storage)};
    return OrStatus(t, [stream, args] { Convert(stream, args); });
  };
  return {.kernel = storage == Storage::kFloat32 ? "convert from bf16" : "convert from fp32",
          .shape = Text(shape.rows, shape.width),
          .storage = storage,
          .large = shape.large,
          .prepare = prepare};
}

KernelCase AddCase(int64_t elements, bool large) {
  const auto prepare = [=](const Stream& stream, KernelTensors& t) -> Launch {
    const AddArgs args = {.sum = t.Floats(kUpdated, elements), .values = t.Floats(kRead, elements)};
    return OrStatus(t, [stream, args] { Add(stream, args); });
  };
  return {.kernel = "add", .shape = absl::StrCat(elements), .large = large, .prepare = prepare};
}

KernelCase SumOfSquaresCase(int64_t elements, int64_t slice, bool large) {
  const auto prepare = [=](const Stream& stream, KernelTensors& t) -> Launch {
    const Vector x = t.Floats(kRead, elements);
    auto slices = std::make_shared<std::vector<SquaresSlice>>();
    for (int64_t first = 0; first < elements; first += slice) {
      slices->push_back({.x = {x.data + first, std::min(slice, elements - first)}, .first = first});
    }
    auto sums = std::make_shared<std::vector<double>>(slices->size());
    return OrStatus(t, [stream, slices, sums] { SumsOfSquares(stream, {.slices = *slices, .sums = *sums}); });
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
  cases.push_back(CrossEntropyCase(LargeRows(shapes, vocabulary * BytesOf(storage)), vocabulary, storage, true));
  for (const int64_t rows : shapes.rows) cases.push_back(CrossEntropyCase(rows, vocabulary, storage, false));
}

}  // namespace

std::vector<KernelCase> MemoryBoundCases(const KernelShapes& shapes, const Stream& stream) {
  const bool device = stream.device() != nullptr;
  std::vector<KernelCase> cases;
  if (device) AddRowCases(shapes, Storage::kBFloat16, device, cases);
  AddRowCases(shapes, Storage::kFloat32, device, cases);
  AddFlatCases(shapes, device, cases);
  std::stable_sort(cases.begin(), cases.end(), [](const KernelCase& a, const KernelCase& b) {
    return std::pair(!a.large, a.kernel) < std::pair(!b.large, b.kernel);
  });
  return cases;
}

}  // namespace hadal
