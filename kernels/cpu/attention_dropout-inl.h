// Dropout factors of attention in the layout of the CPU kernels' probabilities: a vector of queries for each key.
//
//   FillQueryDropoutFactors: out[j, lane] = factor of (first_row + lane, head, key 8·key_block + j),  0 ≤ j < 8
//
// One Philox block has the eight draws of a (query row, head, key block). With one query row per lane, its words are
// the rows of `out` and need no transposition. Same bits as AttentionDropoutFactor (runtime/random.h).
// A Highway "-inl" header: see dropout-inl.h.

#if defined(HADAL_KERNELS_CPU_ATTENTION_DROPOUT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HADAL_KERNELS_CPU_ATTENTION_DROPOUT_INL_H_
#undef HADAL_KERNELS_CPU_ATTENTION_DROPOUT_INL_H_
#else
#define HADAL_KERNELS_CPU_ATTENTION_DROPOUT_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "kernels/cpu/dropout-inl.h"
#include "runtime/random.h"

HWY_BEFORE_NAMESPACE();
namespace hadal {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

inline constexpr int64_t kKeysPerBlock = 8;

// `out` holds 8 vectors.  REQUIRES: dropout.active().
HWY_INLINE void FillQueryDropoutFactors(const Dropout& dropout, uint64_t first_row, uint32_t heads, uint32_t head,
                                        uint32_t key_block, float* HWY_RESTRICT out) {
  const PhiloxTag d64;
  const hn::Repartition<uint32_t, PhiloxTag> d32;
  const hn::Repartition<int32_t, PhiloxTag> di;
  const hn::Repartition<float, PhiloxTag> df;
  const PhiloxCounter base = dropout.counter.At(0, key_block);
  const auto words_of = [&](uint64_t row) HWY_ATTR {
    const PhiloxVec rows = hn::Add(hn::Set(d64, row), hn::Iota(d64, 0));
    const auto block = hn::MulEven(hn::BitCast(d32, rows), hn::Set(d32, heads));
    const PhiloxBlocks counter = {hn::Add(block, hn::Set(d64, uint64_t{head})), hn::Set(d64, uint64_t{base[1]}),
                                  hn::Set(d64, uint64_t{base[2]}), hn::Set(d64, uint64_t{base[3]})};
    return PhiloxRounds(dropout.counter.seed, counter);
  };
  const PhiloxBlocks low = words_of(first_row);
  const PhiloxBlocks high = words_of(first_row + hn::Lanes(d64));

  const auto threshold = hn::Set(di, static_cast<int32_t>(dropout.threshold));
  const auto scale = hn::Set(df, dropout.scale());
  const int64_t lanes = hn::Lanes(df);
  const auto store = [&](PhiloxVec low_word, PhiloxVec high_word, int64_t word) HWY_ATTR {
    const auto bits = hn::ConcatEven(d32, hn::BitCast(d32, high_word), hn::BitCast(d32, low_word));
    const auto even = hn::BitCast(di, hn::And(bits, hn::Set(d32, uint32_t{0xFFFF})));
    const auto odd = hn::BitCast(di, hn::ShiftRight<16>(bits));
    const auto factors = [&](auto draw) HWY_ATTR {
      return hn::IfThenZeroElse(hn::RebindMask(df, hn::Lt(draw, threshold)), scale);
    };
    hn::StoreU(factors(even), df, out + 2 * word * lanes);
    hn::StoreU(factors(odd), df, out + (2 * word + 1) * lanes);
  };
  store(low.word0, high.word0, 0);
  store(low.word1, high.word1, 1);
  store(low.word2, high.word2, 2);
  store(low.word3, high.word3, 3);
}

}  // namespace HWY_NAMESPACE
}  // namespace hadal
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
