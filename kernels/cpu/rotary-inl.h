// Rotary positions on the CPU (kernels/rotary.h): turns rows in place. A Highway "-inl" header: see dropout-inl.h.

#if defined(HADAL_KERNELS_CPU_ROTARY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HADAL_KERNELS_CPU_ROTARY_INL_H_
#undef HADAL_KERNELS_CPU_ROTARY_INL_H_
#else
#define HADAL_KERNELS_CPU_ROTARY_INL_H_
#endif

#include "hwy/highway.h"
#include "kernels/cpu/columns-inl.h"
#include "kernels/rotary.h"

HWY_BEFORE_NAMESPACE();
namespace hadal {
namespace HWY_NAMESPACE {

// Turns one head's columns x from position p's angles; `back`: by the opposite ones.
HWY_INLINE void TurnRow(const Rotary& rotary, int64_t p, bool back, float* x) {
  const int64_t half = rotary.half();
  const float *const cosines = rotary.table.row(p), *const sines = cosines + half;
  ForColumns(0, half, [&](auto d, int64_t c) HWY_ATTR {
    const auto low = hn::LoadU(d, x + c), high = hn::LoadU(d, x + half + c), cosine = hn::LoadU(d, cosines + c);
    auto sine = hn::LoadU(d, sines + c);
    if (back) sine = hn::Neg(sine);
    hn::StoreU(hn::NegMulAdd(high, sine, hn::Mul(low, cosine)), d, x + c);
    hn::StoreU(hn::MulAdd(low, sine, hn::Mul(high, cosine)), d, x + half + c);
  });
}

// Turns the rows of a dense tile [rows, width], one head's, at positions from `first` on. Does nothing without angles.
HWY_INLINE void TurnTile(const Rotary& rotary, int64_t first, bool back, int64_t rows, int64_t width, float* tile) {
  if (!rotary.active()) return;
  for (int64_t i = 0; i < rows; ++i) TurnRow(rotary, first + i, back, tile + i * width);
}

}  // namespace HWY_NAMESPACE
}  // namespace hadal
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
