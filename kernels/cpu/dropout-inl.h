// Dropout factors (0 or Dropout::scale()) of whole rows: Philox4x32-10, one counter block per vector lane.
//
//   FillDropoutFactors  elements [first, first + count) of a packed tensor
//   DropoutWindow       factors for a loop over ascending elements, drawn up to 1024 at a time
//   PhiloxRounds        the generator, for kernels that arrange draws differently (attention_tile-inl.h)
//
// The factors have the bits of DropoutFactor (runtime/random.h) on every instruction set. The scalar definition takes
// about 13 ns per factor, this one 0.3 ns (AVX-512), so drawing a mask twice, in forward and backward, is cheaper than
// storing it.
// A Highway "-inl" header: include it from a file that is compiled once per instruction set (hwy/foreach_target.h), and
// call the functions from that file's HWY_NAMESPACE code. Thread-safe; allocates nothing.

#if defined(HADAL_KERNELS_CPU_DROPOUT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HADAL_KERNELS_CPU_DROPOUT_INL_H_
#undef HADAL_KERNELS_CPU_DROPOUT_INL_H_
#else
#define HADAL_KERNELS_CPU_DROPOUT_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/cpu/columns-inl.h"
#include "runtime/random.h"

HWY_BEFORE_NAMESPACE();
namespace hadal {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Floats that a buffer needs beyond the requested factors, because FillDropoutFactors writes whole vectors of blocks.
inline constexpr int64_t kDropoutSlack = 72;

// Philox runs in 64-bit lanes, because a round is two 32 x 32 -> 64 bit products. Only the low half of a lane is the
// 32-bit word; the high half holds bits of earlier products, which no later operation reads.
using PhiloxTag = hn::CappedTag<uint64_t, 8>;
using PhiloxVec = hn::Vec<PhiloxTag>;

struct PhiloxBlocks {
  PhiloxVec word0, word1, word2, word3;
};

// Moves the high half of a product down by a shuffle, because on AVX-512 shifts share the multiplier's execution port.
HWY_INLINE PhiloxVec SwapHalves(PhiloxVec product) {
  const hn::Repartition<uint32_t, PhiloxTag> d32;
  return hn::BitCast(PhiloxTag(), hn::Shuffle2301(hn::BitCast(d32, product)));
}

// Returns the four random words of each lane's counter `c`: the 10 rounds of Philox4x32.
HWY_INLINE PhiloxBlocks PhiloxRounds(uint64_t key, PhiloxBlocks c) {
  const PhiloxTag d;
  const hn::Repartition<uint32_t, PhiloxTag> d32;
  const auto multiplier0 = hn::BitCast(d32, hn::Set(d, uint64_t{0xD2511F53}));
  const auto multiplier1 = hn::BitCast(d32, hn::Set(d, uint64_t{0xCD9E8D57}));
  uint32_t key0 = static_cast<uint32_t>(key);
  uint32_t key1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const PhiloxVec product0 = hn::MulEven(hn::BitCast(d32, c.word0), multiplier0);
    const PhiloxVec product1 = hn::MulEven(hn::BitCast(d32, c.word2), multiplier1);
    c.word0 = hn::Xor(hn::Xor(SwapHalves(product1), c.word1), hn::Set(d, uint64_t{key0}));
    c.word2 = hn::Xor(hn::Xor(SwapHalves(product0), c.word3), hn::Set(d, uint64_t{key1}));
    c.word1 = product1;
    c.word3 = product0;
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  return c;
}

// Writes the 8 factors of each block to `out`. Lane pair (2k, 2k + 1) holds blocks k and k + Lanes/2 (BlockOfLane), so
// interleaving 64-bit halves puts the factors in the order of the blocks.
HWY_INLINE void StoreFactors(const PhiloxBlocks& blocks, uint32_t threshold, float scale, float* HWY_RESTRICT out) {
  const PhiloxTag d;
  const hn::Repartition<uint16_t, PhiloxTag> d16;
  const hn::Half<decltype(d16)> half16;
  const hn::Repartition<int32_t, PhiloxTag> d32;
  const hn::Repartition<float, PhiloxTag> df;
  const PhiloxVec low_half = hn::Set(d, uint64_t{0xFFFFFFFF});
  const PhiloxVec draws0 = hn::Or(hn::And(blocks.word0, low_half), hn::ShiftLeft<32>(blocks.word1));
  const PhiloxVec draws4 = hn::Or(hn::And(blocks.word2, low_half), hn::ShiftLeft<32>(blocks.word3));
  const auto lower = hn::BitCast(d16, hn::InterleaveLower(d, draws0, draws4));
  const auto upper = hn::BitCast(d16, hn::InterleaveUpper(d, draws0, draws4));

  const auto last_dropped = hn::Set(d32, static_cast<int32_t>(threshold) - 1);
  const auto keep = hn::Set(df, scale);
  const auto store = [&](auto draws, float* to) HWY_ATTR {
    const auto kept = hn::RebindMask(df, hn::Gt(hn::PromoteTo(d32, draws), last_dropped));
    hn::StoreU(hn::IfThenElseZero(kept, keep), df, to);
  };
  const size_t n = hn::Lanes(df);
  store(hn::LowerHalf(half16, lower), out);
  store(hn::UpperHalf(half16, lower), out + n);
  store(hn::LowerHalf(half16, upper), out + 2 * n);
  store(hn::UpperHalf(half16, upper), out + 3 * n);
}

// The block that each lane computes, relative to the vector's first: 0, L/2, 1, L/2 + 1, …
HWY_INLINE PhiloxVec BlockOfLane(PhiloxTag d) {
  HWY_ALIGN uint64_t block[HWY_MAX_BYTES / sizeof(uint64_t)];
  const size_t lanes = hn::Lanes(d);
  for (size_t i = 0; i < lanes; ++i) block[i] = i % 2 * (lanes / 2) + i / 2;
  return hn::Load(d, block);
}

// Fills `buffer` and returns the address of element `first`'s factor in it; the following elements' factors follow.
// REQUIRES: dropout.active(); `buffer` holds count + kDropoutSlack floats.
HWY_INLINE const float* FillDropoutFactors(const Dropout& dropout, uint64_t first, int64_t count, float* buffer) {
  const PhiloxTag d;
  const uint64_t lanes = hn::Lanes(d);
  const PhiloxCounter base = dropout.counter.At(0);
  const float scale = dropout.scale();
  const uint64_t end_block = (first + count + 7) / 8;
  PhiloxVec block = hn::Add(hn::Set(d, first / 8), BlockOfLane(d));
  float* out = buffer;
  for (uint64_t b = first / 8; b < end_block; b += lanes) {
    const PhiloxBlocks counter = {block, hn::Set(d, uint64_t{base[1]}), hn::Set(d, uint64_t{base[2]}),
                                  hn::Set(d, uint64_t{base[3]})};
    StoreFactors(PhiloxRounds(dropout.counter.seed, counter), dropout.threshold, scale, out);
    block = hn::Add(block, hn::Set(d, lanes));
    out += 8 * lanes;
  }
  return buffer + first % 8;
}

// The factors for a loop over ascending elements of a packed tensor; short rows share one draw of the generator. Each
// thread of a kernel has its own object on its stack.
class DropoutWindow {
 public:
  static constexpr int64_t kCapacity = 1024;

  // The loop reads factors of elements below `end` only. `dropout` must outlive the object.
  DropoutWindow(const Dropout& dropout, uint64_t end) : dropout_(dropout), end_(end) {}

  // Calls body(d, c, factors), as ForColumns (columns-inl.h), for columns [begin, end) of the row that starts with
  // element `row_start` of the tensor. factors[c] is column c's; null if `dropout` is inactive.
  template <typename Body>
  HWY_INLINE void ForRow(int64_t row_start, int64_t begin, int64_t end, const Body& body) {
    for (int64_t first = begin; first < end; first += kCapacity) {
      const int64_t last = std::min(end, first + kCapacity);
      const float* const factors = dropout_.active() ? Get(row_start + first, last - first) - first : nullptr;
      ForColumns(first, last, [&](auto d, int64_t c) HWY_ATTR { body(d, c, factors); });
    }
  }

  // Returns the factors of elements [first, first + count), valid until the next call. REQUIRES: `dropout` is active;
  // count ≤ kCapacity; first + count ≤ end.
  HWY_INLINE const float* Get(uint64_t first, int64_t count) {
    if (first < window_begin_ || first + count > window_end_) {
      window_begin_ = first;
      window_end_ = std::min(end_, first + kCapacity);
      factors_ = FillDropoutFactors(dropout_, first, window_end_ - first, buffer_);
    }
    return factors_ + (first - window_begin_);
  }

 private:
  const Dropout& dropout_;
  uint64_t end_;
  uint64_t window_begin_ = 0, window_end_ = 0;  // the elements in buffer_
  const float* factors_ = nullptr;              // of element window_begin_
  float buffer_[kCapacity + kDropoutSlack];
};

}  // namespace HWY_NAMESPACE
}  // namespace hadal
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
