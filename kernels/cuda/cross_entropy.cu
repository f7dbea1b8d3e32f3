#include "kernels/cuda/operations.h"

#include <type_traits>

#include "kernels/cuda/eight.h"
#include "kernels/cuda/thread_layer.h"

namespace hadal::cuda {
namespace {

constexpr int kMostThreads = 1024;
constexpr int kMostWarps = kMostThreads / kWarp;
static_assert(kMostWarps <= kWarp);  // one warp merges them
// Three sums of each warp, and of all. A multiple of four, because nvcc reads the last three with a 16-byte access.
constexpr int kExchangeFloats = (3 * (kMostWarps + 1) + 3) / 4 * 4;

// Threads of a block, which has one row. Wide rows have the most threads possible. Two such blocks fill a
// multiprocessor, and the rows in progress (264 on a GPU of 132, 17 MB of bf16 for 32,000 words) stay in its L2 until
// they are read again. Blocks of 256 threads would have 800 rows in progress, 50 MB, more than any L2: three passes
// over memory instead of two.
int ThreadsOf(int64_t vocabulary) { return vocabulary >= 8 * kMostThreads ? kMostThreads : 256; }

constexpr float kLowest = -3.4028234663852886e38f;  // not -inf: a difference of two infinities would be NaN

template <typename T>
HADAL_DEVICE float ExpOf(float x) {
  return std::is_same_v<T, float> ? Exp(x) : FastExp(x);
}

// Sums over part of a row's logits.
struct RowSums {
  float maximum = kLowest;
  float exponentials = 0.0f;  // Σ_v e^(z_v − maximum)
  float logits = 0.0f;        // Σ_v z_v
};

template <typename T>
HADAL_DEVICE RowSums Merge(const RowSums& a, const RowSums& b) {
  RowSums both;
  both.maximum = a.maximum > b.maximum ? a.maximum : b.maximum;
  both.exponentials =
      a.exponentials * ExpOf<T>(a.maximum - both.maximum) + b.exponentials * ExpOf<T>(b.maximum - both.maximum);
  both.logits = a.logits + b.logits;
  return both;
}

// Adds `count` logits. A NaN never becomes the maximum, but goes into the sum of exponentials.
template <typename T>
HADAL_DEVICE void AddEight(const Eight& z, int count, RowSums& sums) {
  float maximum = sums.maximum;
  HADAL_UNROLL for (int i = 0; i < 8; ++i) {
    if (i < count && z.v[i] > maximum) maximum = z.v[i];
  }
  float exponentials = 0.0f, logits = 0.0f;
  HADAL_UNROLL for (int i = 0; i < 8; ++i) {
    if (i >= count) continue;
    exponentials += ExpOf<T>(z.v[i] - maximum);
    logits += z.v[i];
  }
  sums.exponentials = MulAdd(sums.exponentials, ExpOf<T>(sums.maximum - maximum), exponentials);
  sums.maximum = maximum;
  sums.logits += logits;
}

// Merges the lanes' sums as a butterfly: every lane has the result.
template <typename T>
HADAL_DEVICE RowSums MergeWarp(RowSums sums) {
  HADAL_UNROLL for (int mask = kWarp / 2; mask > 0; mask /= 2) {
    RowSums other;
    other.maximum = ShuffleXor(sums.maximum, mask);
    other.exponentials = ShuffleXor(sums.exponentials, mask);
    other.logits = ShuffleXor(sums.logits, mask);
    sums = Merge<T>(sums, other);
  }
  return sums;
}

// Merges the threads' sums: each warp its own, then the first warp the warps' sums. Every thread has the result.
template <typename T>
HADAL_DEVICE RowSums MergeBlock(RowSums sums, Shared<float> exchange) {
  sums = MergeWarp<T>(sums);
  const int warp = ThreadIndex() / kWarp, lane = ThreadIndex() % kWarp, warps = ThreadsInBlock() / kWarp;
  const auto put = [&](int place) {
    exchange[3 * place] = sums.maximum;
    exchange[3 * place + 1] = sums.exponentials;
    exchange[3 * place + 2] = sums.logits;
  };
  const auto get = [&](int place) {
    return RowSums{exchange[3 * place], exchange[3 * place + 1], exchange[3 * place + 2]};
  };
  if (lane == 0) put(warp);
  Barrier();
  if (warp == 0) {
    sums = MergeWarp<T>(lane < warps ? get(lane) : RowSums());
    if (lane == 0) put(kMostWarps);
  }
  Barrier();
  return get(kMostWarps);
}

// Always eight with 16-byte accesses.
template <bool kAligned>
HADAL_DEVICE int CountAt(int64_t column, int64_t vocabulary) {
  return kAligned || vocabulary - column >= 8 ? 8 : static_cast<int>(vocabulary - column);
}

// dz = scale · ((1 + 2·zeta·logsumexp(z))·softmax(z) − q), in place. q is `share` everywhere, plus target_weight at the
// target.
template <typename T, bool kAligned>
HADAL_DEVICE void WriteGradient(const CrossEntropyArgs& args, DevicePointer<T> row, int64_t target, const RowSums& sums,
                                float share, float target_weight) {
  const float scale = Load(ViewOf(args.device_gradient_scale));
  const float log_sum_exp = args.z_loss == 0.0f ? 0.0f : sums.maximum + Log(sums.exponentials);
  const float factor = scale * MulAdd(2.0f * args.z_loss, log_sum_exp, 1.0f) / sums.exponentials;
  for (int64_t column = 8 * ThreadIndex(); column < args.logits.columns; column += 8 * ThreadsInBlock()) {
    const int count = CountAt<kAligned>(column, args.logits.columns);
    Eight z = LoadEight<kAligned>(row + column, count);
    HADAL_UNROLL for (int i = 0; i < 8; ++i) {
      z.v[i] = MulAdd(ExpOf<T>(z.v[i] - sums.maximum), factor, -scale * share);
      if (column + i == target) z.v[i] -= scale * target_weight;
    }
    StoreEight<kAligned>(row + column, z, count);
  }
}

template <typename T, bool kAligned>
HADAL_DEVICE void WriteZeros(const CrossEntropyArgs& args, DevicePointer<T> row) {
  for (int64_t column = 8 * ThreadIndex(); column < args.logits.columns; column += 8 * ThreadsInBlock()) {
    StoreEight<kAligned>(row + column, Eight(), CountAt<kAligned>(column, args.logits.columns));
  }
}

template <typename T, bool kAligned>
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kMostThreads, 2) CrossEntropyKernel(CrossEntropyArgs args) {
  HADAL_SHARED(float, exchange, kExchangeFloats);
  const int64_t row = BlockX();
  const DevicePointer<T> logits = ViewOf<T>(args.logits).row(row);
  const int64_t target = Load(ViewOf(args.device_targets) + row);
  if (target < 0) {
    if (args.device_gradient_scale != nullptr) WriteZeros<T, kAligned>(args, logits);
    if (ThreadIndex() == 0) {
      Store(ViewOf(args.loss) + row, 0.0f), Store(ViewOf(args.nll) + row, 0.0f);
      if (Given(args.hits)) Store(ViewOf(args.hits) + row, 0.0f);
    }
    return;
  }
  RowSums sums;
  for (int64_t column = 8 * ThreadIndex(); column < args.logits.columns; column += 8 * ThreadsInBlock()) {
    const int count = CountAt<kAligned>(column, args.logits.columns);
    AddEight<T>(LoadEight<kAligned>(logits + column, count), count, sums);
  }
  const float target_logit = ToFloat(Load(logits + target));  // read by all before any write: a barrier follows
  sums = MergeBlock<T>(sums, exchange);
  const float share =
      args.label_smoothing == 0.0f ? 0.0f : args.label_smoothing / static_cast<float>(args.logits.columns - 1);
  const float target_weight = 1.0f - args.label_smoothing - share;
  if (ThreadIndex() == 0) {
    const float log_sum_exp = sums.maximum + Log(sums.exponentials);
    const float nll = log_sum_exp - target_logit;
    const float smooth =
        share == 0.0f ? 0.0f : share * (static_cast<float>(args.logits.columns) * log_sum_exp - sums.logits);
    Store(ViewOf(args.nll) + row, nll);
    if (Given(args.hits)) Store(ViewOf(args.hits) + row, target_logit == sums.maximum ? 1.0f : 0.0f);
    Store(ViewOf(args.loss) + row, MulAdd(args.z_loss * log_sum_exp, log_sum_exp, MulAdd(target_weight, nll, smooth)));
  }
  if (args.device_gradient_scale != nullptr)
    WriteGradient<T, kAligned>(args, logits, target, sums, share, target_weight);
}

}  // namespace

void CrossEntropy(StreamHandle stream, const CrossEntropyArgs& args) {
  if (args.logits.rows == 0) return;
  HADAL_CHECK(args.device_targets != nullptr);
  const int64_t vocabulary = args.logits.columns;
  const bool aligned = InAlignedEights(vocabulary, {args.logits});
  WithElement(args.logits.storage, [&]<typename T>(T) {
    Launch(stream, {.blocks_x = args.logits.rows, .threads = ThreadsOf(vocabulary)},
           aligned ? CrossEntropyKernel<T, true> : CrossEntropyKernel<T, false>, args);
  });
}

}  // namespace hadal::cuda
