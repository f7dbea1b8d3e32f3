#include "tools/bench/bench_kernels.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/attention.h"
#include "kernels/cpu/product.h"
#include "kernels/linear.h"
#include "kernels/orthogonalize.h"
#include "runtime/status_macros.h"
#include "tools/bench/kernel_batch.h"

namespace hadal {
namespace {

using enum Traffic;

struct AttentionCase {
  int64_t rows, width, head_width, length;
  bool causal;
  Storage storage;

  int32_t heads() const { return static_cast<int32_t>(width / head_width); }
  double flops(int products) const {
    double pairs = 0;
    for (int64_t row = 0; row < rows; row += length) {
      const double l = static_cast<double>(std::min(length, rows - row));
      pairs += causal ? l * (l + 1) / 2 : l * l;
    }
    return 2.0 * products * pairs * static_cast<double>(width);
  }
  std::string text() const { return absl::StrCat(rows, " x ", width, ", sentences of ", length); }
};

// Inputs of both directions: q, k and v as column ranges of one product, as in self-attention.
struct AttentionInputs {
  AttentionShape shape;
  ConstAnyMatrix q, k, v;
  Dropout dropout;
};
AttentionInputs InputsOf(const AttentionCase& of, const KernelBatch& batch, KernelTensors& t) {
  const ConstAnyMatrix qkv = t.Matrix(kRead, of.rows, 3 * of.width, of.storage);
  if (qkv.empty()) return {};
  return {.shape = {.query_offsets = batch.offsets(),
                    .key_offsets = batch.offsets(),
                    .heads = of.heads(),
                    .causal = of.causal,
                    .device_tiles = batch.device_batch().target_self},
          .q = qkv.Columns(0, of.width),
          .k = qkv.Columns(of.width, of.width),
          .v = qkv.Columns(2 * of.width, of.width),
          .dropout = batch.DropoutAt(RandomSite::kAttention, false)};
}

int64_t ScratchOf(const AttentionCase& of, const Stream& stream) {
  return AttentionScratch(
      stream,
      {.query_rows = of.rows, .max_length = of.length, .heads = of.width / of.head_width, .head_width = of.head_width});
}

// `name`: "attention forward"; `products`: per pair of a query and a key.
KernelCase CaseOf(const AttentionCase& of, const char* name, int products) {
  return {.kernel = absl::StrCat(name, of.causal ? ", causal" : ""),
          .shape = of.text(),
          .storage = of.storage,
          .flops = of.flops(products)};
}

KernelCase AttentionForwardCase(const AttentionCase& of) {
  const auto make = [of](const Stream& stream, KernelTensors& t, const KernelBatch& batch) {
    const AttentionInputs in = InputsOf(of, batch, t);
    return AttentionForwardArgs{
        .shape = in.shape,
        .q = in.q,
        .k = in.k,
        .v = in.v,
        .dropout = in.dropout,
        .output = t.Matrix(kWritten, of.rows, of.width, of.storage),
        .log_sum_exp = t.Matrix(kWritten, of.rows, of.width / of.head_width, Storage::kFloat32).floats(),
        .scratch = t.Floats(kScratch, ScratchOf(of, stream))};
  };
  return WithLaunch(CaseOf(of, "attention forward", 2), {of.rows, of.length, of.rows}, AttentionForward, make);
}

KernelCase AttentionBackwardCase(const AttentionCase& of) {
  const auto make = [of](const Stream& stream, KernelTensors& t, const KernelBatch& batch) {
    const AttentionInputs in = InputsOf(of, batch, t);
    const AnyMatrix d_qkv = t.Matrix(kWritten, of.rows, 3 * of.width, of.storage);
    if (!t.status().ok()) return AttentionBackwardArgs();
    const int64_t heads = of.width / of.head_width;
    return AttentionBackwardArgs{
        .shape = in.shape,
        .q = in.q,
        .k = in.k,
        .v = in.v,
        .log_sum_exp = t.Matrix(kRead, of.rows, heads, Storage::kFloat32, TensorValues::kPositive).floats(),
        .d_output = t.Matrix(kRead, of.rows, of.width, of.storage),
        .dropout = in.dropout,
        .d_q = d_qkv.Columns(0, of.width),
        .d_k = d_qkv.Columns(of.width, of.width),
        .d_v = d_qkv.Columns(2 * of.width, of.width),
        .scratch = t.Floats(kScratch, ScratchOf(of, stream))};
  };
  return WithLaunch(CaseOf(of, "attention backward", 5), {of.rows, of.length, of.rows}, AttentionBackward, make);
}

struct LinearShape {
  int64_t rows, in, out;
  Storage storage;

  double flops() const { return 2.0 * static_cast<double>(rows) * static_cast<double>(in * out); }
  std::string text() const { return absl::StrCat(rows, " x ", in, " to ", out); }
};

KernelCase CaseOf(const LinearShape& of, const char* name) {
  return {.kernel = name, .shape = of.text(), .storage = of.storage, .flops = of.flops()};
}

// `epilogue`: with bias, ReLU and dropout.
KernelCase LinearForwardCase(const LinearShape& of, bool epilogue) {
  const auto make = [=](const Stream&, KernelTensors& t, const KernelBatch& batch) {
    LinearForwardArgs args = {.x = t.Matrix(kRead, of.rows, of.in, of.storage),
                              .weight = t.Matrix(kRead, of.out, of.in, of.storage),
                              .relu = epilogue,
                              .dropout = batch.DropoutAt(RandomSite::kActivation, epilogue),
                              .y = t.Matrix(kWritten, of.rows, of.out, of.storage)};
    if (epilogue) {
      const ConstAnyMatrix bias = t.Matrix(kRead, 1, of.out, of.storage);
      if (of.storage == Storage::kFloat32) args.bias = VectorOf<const float>(bias.floats().data, of.out);
      if (of.storage == Storage::kBFloat16) args.bias = VectorOf<const BFloat16>(bias.of<BFloat16>().data, of.out);
    }
    return args;
  };
  return WithLaunch(CaseOf(of, epilogue ? "linear forward, bias, ReLU, dropout" : "linear forward"), {}, LinearForward,
                    make);
}

// A feed-forward layer's ReLU as in bf16 training without activation dropout: with a mask if the products support it
// for the shape, else with its output. `of`: the first product; the second has the reverse shape.
ReluMaskArgs MaskOf(const LinearShape& of, const ConstAnyMatrix& weight, const ConstAnyMatrix& contraction) {
  return {.rows = of.rows, .hidden_weight = weight, .hidden_bias = true, .contraction_weight = contraction};
}
std::byte* MaskMemory(const LinearShape& of, Traffic traffic, KernelTensors& t) {
  return reinterpret_cast<std::byte*>(t.Floats(traffic, ReluMaskBytes(of.rows, of.out) / 4).data);
}

KernelCase MaskedForwardCase(const LinearShape& of) {
  const auto make = [of](const Stream& stream, KernelTensors& t, const KernelBatch&) {
    LinearForwardArgs args = {.x = t.Matrix(kRead, of.rows, of.in, of.storage),
                              .weight = t.Matrix(kRead, of.out, of.in, of.storage),
                              .relu = true,
                              .y = t.Matrix(kWritten, of.rows, of.out, of.storage)};
    const ConstAnyMatrix bias = t.Matrix(kRead, 1, of.out, of.storage);
    const ConstAnyMatrix contraction = t.Matrix(kScratch, of.in, of.out, of.storage);
    if (!t.status().ok()) return args;
    args.bias = VectorOf<const BFloat16>(bias.of<BFloat16>().data, of.out);
    if (HasReluMask(stream, MaskOf(of, args.weight, contraction))) args.relu_mask = MaskMemory(of, kWritten, t);
    return args;
  };
  return WithLaunch(CaseOf(of, "linear forward, bias, ReLU, mask"), {}, LinearForward, make);
}

KernelCase MaskedBackwardCase(const LinearShape& of) {
  const auto make = [of](const Stream& stream, KernelTensors& t, const KernelBatch&) {
    LinearBackwardInputArgs args = {.dy = t.Matrix(kRead, of.rows, of.in, of.storage),
                                    .weight = t.Matrix(kRead, of.in, of.out, of.storage),
                                    .dx = t.Matrix(kWritten, of.rows, of.out, of.storage)};
    const ConstAnyMatrix weight = t.Matrix(kScratch, of.out, of.in, of.storage);
    if (!t.status().ok()) return args;
    if (HasReluMask(stream, MaskOf(of, weight, args.weight))) {
      args.relu_mask = MaskMemory(of, kRead, t);
    } else {
      args.relu_output = t.Matrix(kRead, of.rows, of.out, of.storage);
    }
    return args;
  };
  const LinearShape reversed = {of.rows, of.out, of.in, of.storage};
  return WithLaunch(CaseOf(reversed, "linear backward input, mask"), {}, LinearBackwardInput, make);
}

KernelCase LinearBackwardInputCase(const LinearShape& of) {
  const auto make = [of](const Stream&, KernelTensors& t, const KernelBatch&) {
    return LinearBackwardInputArgs{.dy = t.Matrix(kRead, of.rows, of.out, of.storage),
                                   .weight = t.Matrix(kRead, of.out, of.in, of.storage),
                                   .relu_output = t.Matrix(kRead, of.rows, of.in, of.storage),
                                   .mask_scale = 1.1f,
                                   .dx = t.Matrix(kWritten, of.rows, of.in, of.storage)};
  };
  return WithLaunch(CaseOf(of, "linear backward input, ReLU"), {}, LinearBackwardInput, make);
}

KernelCase LinearBackwardWeightCase(const LinearShape& of, bool bias) {
  const auto make = [=](const Stream&, KernelTensors& t, const KernelBatch&) {
    LinearBackwardWeightArgs args = {.dy = t.Matrix(kRead, of.rows, of.out, of.storage),
                                     .x = t.Matrix(kRead, of.rows, of.in, of.storage),
                                     .d_weight = t.Matrix(kUpdated, of.out, of.in, Storage::kFloat32).floats()};
    if (bias) args.d_bias = t.Floats(kUpdated, of.out);
    return args;
  };
  return WithLaunch(CaseOf(of, bias ? "linear backward weight, bias" : "linear backward weight"), {},
                    LinearBackwardWeight, make);
}

// Muon's, of five iterations.
KernelCase OrthogonalizeCase(int64_t rows, int64_t columns, Storage storage, bool by_halves) {
  const NewtonSchulz iteration;
  const auto make = [=](const Stream&, KernelTensors& t, const KernelBatch&) {
    return OrthogonalizeArgs{.u = t.Matrix(kUpdated, rows, columns, Storage::kFloat32).floats(),
                             .squares = static_cast<double>(rows * columns) / 3,
                             .iteration = iteration,
                             .storage = storage,
                             .workspace = t.Floats(kScratch, OrthogonalizeFloats(rows, columns, storage))};
  };
  return WithLaunch({.kernel = "orthogonalize",
                     .shape = absl::StrCat(rows, " x ", columns),
                     .storage = storage,
                     .flops = OrthogonalizeOperations(rows, columns, iteration.steps, by_halves)},
                    {}, Orthogonalize, make);
}

// The products of as many iterations alone, none by halves: on a CPU the limit of orthogonalize.
KernelCase OrthogonalizeProductsCase(int64_t rows, int64_t columns) {
  const NewtonSchulz iteration;
  const int64_t n = std::min(rows, columns), m = std::max(rows, columns);
  const auto prepare = [=](const Stream& stream, KernelTensors& t) -> absl::StatusOr<KernelLaunch> {
    const AnyMatrix x = t.Matrix(kRead, n, m, Storage::kFloat32), y = t.Matrix(kWritten, n, m, Storage::kFloat32),
                    gram = t.Matrix(kWritten, n, n, Storage::kFloat32),
                    square = t.Matrix(kWritten, n, n, Storage::kFloat32);
    HADAL_RETURN_IF_ERROR(t.status());
    return [=] {
      for (int32_t step = 0; step < iteration.steps; ++step) {
        LinearForward(stream, {.x = x, .weight = x, .y = gram});
        LinearForward(stream, {.x = gram, .weight = gram, .y = square});
        LinearBackwardInput(stream, {.dy = square, .weight = x, .dx = y});
      }
    };
  };
  return {.kernel = "orthogonalize: products alone",
          .shape = absl::StrCat(rows, " x ", columns),
          .flops = OrthogonalizeOperations(rows, columns, iteration.steps, /*by_halves=*/false),
          .prepare = prepare};
}

// The limit of the CPU's products.
KernelCase PeakCase(const Stream& stream) {
  constexpr int64_t kRounds = 1'000'000;
  const auto prepare = [](const Stream& stream, KernelTensors& t) -> absl::StatusOr<KernelLaunch> {
    t.Floats(kRead, 1);
    HADAL_RETURN_IF_ERROR(t.status());
    return [stream] { stream.Run([](int) { cpu::MultiplyInRegisters(kRounds); }); };
  };
  return {.kernel = "linear: multiply-adds in registers",
          .shape = "the cores' limit",
          .flops = static_cast<double>(cpu::MultiplyInRegisters(1) * kRounds * stream.threads()),
          .prepare = prepare};
}

}  // namespace

std::vector<KernelCase> ProductCases(const KernelShapes& shapes, const Stream& stream) {
  std::vector<Storage> storages = {Storage::kFloat32};
  if (stream.device() != nullptr) storages.insert(storages.begin(), Storage::kBFloat16);
  std::vector<KernelCase> cases;
  if (stream.device() == nullptr) cases.push_back(PeakCase(stream));
  for (const Storage storage : storages) {
    for (const int64_t width : shapes.widths) {
      for (const auto& [rows, columns] : {std::pair(width, width), {4 * width, width}, {width, 4 * width}}) {
        cases.push_back(OrthogonalizeCase(rows, columns, storage, /*by_halves=*/stream.device() == nullptr));
        if (stream.device() == nullptr) cases.push_back(OrthogonalizeProductsCase(rows, columns));
      }
    }
    for (const int64_t rows : shapes.rows) {
      for (const int64_t width : shapes.widths) {
        for (const int64_t length : shapes.lengths) {
          AttentionCase of = {rows, width, shapes.head_width, length, false, storage};
          cases.push_back(AttentionForwardCase(of));
          cases.push_back(AttentionBackwardCase(of));
          of.causal = true;
          if (length != shapes.lengths.back()) continue;
          cases.push_back(AttentionForwardCase(of));
          cases.push_back(AttentionBackwardCase(of));
        }
        const LinearShape linear = {rows, width, 4 * width, storage};
        for (const bool epilogue : {false, true}) cases.push_back(LinearForwardCase(linear, epilogue));
        cases.push_back(LinearBackwardInputCase({rows, 4 * width, width, storage}));
        for (const bool bias : {false, true}) cases.push_back(LinearBackwardWeightCase(linear, bias));
        if (storage != Storage::kBFloat16) continue;
        cases.push_back(MaskedForwardCase(linear));
        cases.push_back(MaskedBackwardCase(linear));
      }
    }
  }
  std::ranges::stable_sort(cases, {}, &KernelCase::kernel);
  return cases;
}

}  // namespace hadal
