#include <algorithm>
#include <tuple>

#include "kernels/cuda/column_merge.h"
#include "kernels/cuda/linear_epilogue.h"
#include "kernels/cuda_host/column_sum_memory.h"
#include "kernels/cuda_host/operations.h"
#include "kernels/gradient_batch.h"

namespace hadal::cuda {
namespace {

bool OnBoundary(const LinearBackwardWeightArgs& p) {
  return OnMatmulBoundary(p.dy.data) && OnMatmulBoundary(p.x.data) && OnMatmulBoundary(p.d_weight.data);
}

// Products with equal fields have the same algorithm.
auto KindOf(const LinearBackwardWeightArgs& p) {
  return std::tuple(p.dy.rows, p.dy.columns, p.x.columns, p.dy.stride, p.x.stride, p.d_weight.stride, p.dy.storage,
                    p.d_bias.empty(), OnBoundary(p));
}

// Elements from one product's operands to the next one's.
struct Steps {
  Steps(const LinearBackwardWeightArgs& from, const LinearBackwardWeightArgs& to)
      : dy(Between(from.dy.data, to.dy.data, BytesOf(from.dy.storage))),
        x(Between(from.x.data, to.x.data, BytesOf(from.x.storage))),
        d_weight(Between(from.d_weight.data, to.d_weight.data, sizeof(float))),
        d_bias(Between(from.d_bias.data, to.d_bias.data, sizeof(float))) {}
  bool operator==(const Steps&) const = default;
  bool ascending() const { return dy >= 0 && x >= 0 && d_weight > 0; }

  static int64_t Between(const void* from, const void* to, int64_t element_bytes) {
    return static_cast<int64_t>(reinterpret_cast<uintptr_t>(to) - reinterpret_cast<uintptr_t>(from)) / element_bytes;
  }
  int64_t dy, x, d_weight, d_bias;
};

// Returns how many of the products 0, skip, 2·skip, … are at constant distances.
size_t LengthOfRun(std::span<const LinearBackwardWeightArgs> products, size_t skip) {
  if (products.size() <= skip) return 1;
  const Steps steps(products[0], products[skip]);
  if (!steps.ascending()) return 1;
  size_t length = 2;
  while (length * skip < products.size() && Steps(products[(length - 1) * skip], products[length * skip]) == steps) {
    ++length;
  }
  return length;
}

// Moves the longest run that begins with the first product to the front and returns its length. `products`: of one
// kind, in the order of their destinations. A layer may have several of a kind (the outputs of two attentions).
size_t TakeRun(std::span<LinearBackwardWeightArgs> products) {
  constexpr size_t kMostOfALayer = 3;
  size_t length = 1, skip = 1;
  for (size_t s = 1; s <= kMostOfALayer; ++s) {
    const size_t found = LengthOfRun(products, s);
    if (found > length) length = found, skip = s;
  }
  for (size_t i = 1; i < length; ++i) {
    const auto first = products.begin() + static_cast<ptrdiff_t>(i),
               next = products.begin() + static_cast<ptrdiff_t>(i * skip);
    std::rotate(first, next, next + 1);
  }
  return length;
}

MatmulArgs ProductOf(const Stream& stream, std::span<const LinearBackwardWeightArgs> run, const GradientBatch* batch) {
  const LinearBackwardWeightArgs& first = run[0];
  MatmulArgs product{.m = first.d_weight.rows,
                     .n = first.d_weight.columns,
                     .k = first.dy.rows,
                     .a = first.dy,
                     .a_transposed = true,
                     .b = first.x,
                     .accumulate = true,
                     .c = first.d_weight,
                     .queue = stream.queue(),
                     .workspace = batch == nullptr ? nullptr : batch->workspace()};
  if (run.size() == 1) return product;
  const Steps steps(run[0], run[1]);
  product.count = static_cast<int64_t>(run.size());
  product.a_step = steps.dy, product.b_step = steps.x, product.c_step = steps.d_weight;
  return product;
}

// Launches a run's products with their sums over rows in the epilogue.
void MultiplyWithSums(const Stream& stream, std::span<const LinearBackwardWeightArgs> run, GradientBatch* batch) {
  MatmulArgs product = ProductOf(stream, run, batch);
  constexpr int64_t kFloatsOfBoundary = 4;
  product.a_sums_step = (product.m + kFloatsOfBoundary - 1) / kFloatsOfBoundary * kFloatsOfBoundary;
  const ColumnSumMemory memory(stream, batch, product.count * product.a_sums_step, product.count);
  product.a_sums = {memory.partials, product.m};
  AnyDeviceOf(stream).Multiply(product);
  for (size_t i = 0; i < run.size(); ++i) {
    const ColumnMerge merge = {.parts = memory.partials + static_cast<int64_t>(i) * product.a_sums_step,
                               .count = 1,
                               .stride = product.m,
                               .width = product.m,
                               .sums = run[i].d_bias.data};
    MergeColumns(HandleOf(stream), {&merge, 1}, memory.later);
  }
}

void AddColumnSums(const Stream& stream, std::span<const LinearBackwardWeightArgs> run, GradientBatch* batch) {
  const ConstAnyMatrix& dy = run[0].dy;
  const auto count = static_cast<int64_t>(run.size());
  const ColumnSumMemory memory(stream, batch, count * ColumnSumFloats(dy.rows, dy.columns), count);
  WithElement(dy.storage, [&]<typename T>(T) {
    ColumnSumsArgs<T> args{.rows = dy.rows,
                           .width = dy.columns,
                           .count = count,
                           .x = ViewOf<T>(dy),
                           .sums = run[0].d_bias.data,
                           .partials = memory.partials};
    if (count > 1) {
      const Steps steps(run[0], run[1]);
      args.x_step = steps.dy, args.sums_step = steps.d_bias;
    }
    ColumnSums<T>(HandleOf(stream), args, memory.later);
  });
}

// Whether a product of this kind sums its bias's gradient. Does not depend on the number of products.
bool SumsRide(const Stream& stream, const LinearBackwardWeightArgs& product, const GradientBatch* batch) {
  if (product.d_bias.empty() || product.d_bias.size > kColumnPartials) return false;
  MatmulArgs alone = ProductOf(stream, {&product, 1}, batch);
  alone.a_sums = {reinterpret_cast<float*>(AnyDeviceOf(stream).launch_memory().scratch()), product.d_bias.size};
  return AnyDeviceOf(stream).matmul().Offers(alone);
}

// Returns how many products of a run one launch can do.
size_t MostTogether(const Stream& stream, std::span<const LinearBackwardWeightArgs> run, bool sums_ride,
                    const GradientBatch* batch) {
  size_t most = run.size();
  if (batch != nullptr && !run[0].d_bias.empty()) {
    const int64_t floats = std::max(ColumnSumFloats(run[0].dy.rows, run[0].dy.columns), run[0].d_bias.size + 3);
    most = std::clamp<size_t>(batch->memory_floats() / floats, 1, std::min(most, GradientBatch::kMostMerges));
  }
  const auto offered = [&](size_t count) {
    MatmulArgs product = ProductOf(stream, run.first(count), batch);
    if (sums_ride) {
      product.a_sums = {reinterpret_cast<float*>(AnyDeviceOf(stream).launch_memory().scratch()), product.m};
      product.a_sums_step = (product.m + 3) / 4 * 4;
    }
    return AnyDeviceOf(stream).matmul().Offers(product);
  };
  while (most > 1 && !offered(most)) most /= 2;
  return most;
}

void LaunchRun(const Stream& stream, std::span<const LinearBackwardWeightArgs> run, GradientBatch* batch) {
  const bool sums_ride = SumsRide(stream, run[0], batch);
  const size_t most = MostTogether(stream, run, sums_ride, batch);
  for (; !run.empty(); run = run.subspan(std::min(most, run.size()))) {
    const auto together = run.first(std::min(most, run.size()));
    if (sums_ride) {
      MultiplyWithSums(stream, together, batch);
      continue;
    }
    AnyDeviceOf(stream).Multiply(ProductOf(stream, together, batch));
    if (!together[0].d_bias.empty()) AddColumnSums(stream, together, batch);
  }
}

}  // namespace

void operation::LinearBackwardWeights(const Stream& stream, std::span<LinearBackwardWeightArgs> products,
                                      GradientBatch* batch) {
  std::ranges::sort(products, {}, [](const LinearBackwardWeightArgs& p) {
    return std::tuple_cat(KindOf(p), std::tuple(p.d_weight.data));
  });
  for (std::span<LinearBackwardWeightArgs> left = products; !left.empty();) {
    const auto other = [&](const LinearBackwardWeightArgs& p) { return KindOf(p) != KindOf(left[0]); };
    const auto of_a_kind = left.first(std::ranges::find_if(left, other) - left.begin());
    const size_t length = TakeRun(of_a_kind);
    LaunchRun(stream, left.first(length), batch);
    left = left.subspan(length);
  }
}

}  // namespace hadal::cuda
