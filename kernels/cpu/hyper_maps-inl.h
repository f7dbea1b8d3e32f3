// The maps of hyper-connections (kernels/hyper_connection.h) of several rows at once, one row in each lane of a vector:
// MapsForward, MapsBackward, and Sinkhorn's normalisation, which is most of their work. One row at a time, a step of
// Sinkhorn takes 300 scalar instructions.
//
// Shapes: a row's square [n, n] by rows; element k of the row in lane l is at [k · kRowLanes + l], aligned.
// Numerics: fp32, sums ascending. A row's bits depend neither on its lane nor on other rows. A NaN stays in its row.
// kResiduals: n, if it is known when compiling (loops are unrolled); 0: the argument `residuals`.
// Memory: SinkhornBackward computes the forward again and keeps the square after each step on the stack: for n = 4
// 26 KiB on AVX2, 52 KiB on AVX-512; for any other n the arrays of n = 8: 94 and 188 KiB.
// A Highway "-inl" header: see columns-inl.h. Thread-safe; allocates nothing.

#if defined(HADAL_KERNELS_CPU_HYPER_MAPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HADAL_KERNELS_CPU_HYPER_MAPS_INL_H_
#undef HADAL_KERNELS_CPU_HYPER_MAPS_INL_H_
#else
#define HADAL_KERNELS_CPU_HYPER_MAPS_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "kernels/cpu/columns-inl.h"
#include "kernels/cpu/exp-inl.h"
#include "kernels/hyper_connection.h"

HWY_BEFORE_NAMESPACE();
namespace hadal {
namespace HWY_NAMESPACE {

inline constexpr int64_t kMostMaps = HyperMaps(kMostResiduals);
inline constexpr int64_t kRowLanes = hn::MaxLanes(FloatTag());
static_assert(kHyperRowBlock % kRowLanes == 0);
inline constexpr int64_t kSinkhornRounds = 20;
inline constexpr float kLeastSinkhornSum = 1e-30f;

// m becomes e^(m − the column's largest). The first division by the columns' sums then gives the result of e^m.
HWY_INLINE void Exponentials(int64_t n, FloatVec* m) {
  const FloatTag d;
#pragma GCC unroll 4
  for (int64_t j = 0; j < n; ++j) {
    FloatVec largest = m[j];
#pragma GCC unroll 4
    for (int64_t i = 1; i < n; ++i) largest = hn::Max(largest, m[i * n + j]);
#pragma GCC unroll 4
    for (int64_t i = 0; i < n; ++i) m[i * n + j] = Exp(d, hn::Sub(m[i * n + j], largest));
  }
}

// Divides each column of m, or each row, by its sum; factors [n] (=): the reciprocals of the sums.
template <bool kColumns>
HWY_INLINE void Divide(int64_t n, FloatVec* m, FloatVec* factors) {
  const FloatTag d;
  const int64_t between_groups = kColumns ? 1 : n, between_elements = kColumns ? n : 1;
#pragma GCC unroll 4
  for (int64_t g = 0; g < n; ++g) {
    FloatVec* const group = m + g * between_groups;
    FloatVec sum = group[0];
#pragma GCC unroll 4
    for (int64_t k = 1; k < n; ++k) sum = hn::Add(sum, group[k * between_elements]);
    const auto vanishes = hn::Lt(sum, hn::Set(d, kLeastSinkhornSum));
    factors[g] = hn::IfThenZeroElse(vanishes, hn::Div(hn::Set(d, 1.0f), sum));
#pragma GCC unroll 4
    for (int64_t k = 0; k < n; ++k) group[k * between_elements] = hn::Mul(group[k * between_elements], factors[g]);
  }
}

// `gradient`: on entry that of Divide's result `after`, on return that of Divide's argument.
template <bool kColumns>
HWY_INLINE void DivideBackward(int64_t n, const FloatVec* after, const FloatVec* factors, FloatVec* gradient) {
  const int64_t between_groups = kColumns ? 1 : n, between_elements = kColumns ? n : 1;
#pragma GCC unroll 4
  for (int64_t g = 0; g < n; ++g) {
    const FloatVec* const result = after + g * between_groups;
    FloatVec* const group = gradient + g * between_groups;
    FloatVec dot = hn::Mul(group[0], result[0]);
#pragma GCC unroll 4
    for (int64_t k = 1; k < n; ++k) dot = hn::MulAdd(group[k * between_elements], result[k * between_elements], dot);
#pragma GCC unroll 4
    for (int64_t k = 0; k < n; ++k) {
      group[k * between_elements] = hn::Mul(hn::Sub(group[k * between_elements], dot), factors[g]);
    }
  }
}

HWY_INLINE void CopySquare(int64_t n, const FloatVec* from, FloatVec* to) {
#pragma GCC unroll 16
  for (int64_t k = 0; k < n * n; ++k) to[k] = from[k];
}
HWY_INLINE void LoadSquare(int64_t n, const float* HWY_RESTRICT lanes, FloatVec* m) {
  const FloatTag d;
#pragma GCC unroll 16
  for (int64_t k = 0; k < n * n; ++k) m[k] = hn::Load(d, lanes + k * kRowLanes);
}
HWY_INLINE void StoreSquare(int64_t n, const FloatVec* m, float* HWY_RESTRICT lanes) {
  const FloatTag d;
#pragma GCC unroll 16
  for (int64_t k = 0; k < n * n; ++k) hn::Store(m[k], d, lanes + k * kRowLanes);
}

// `square`: on entry the logits, on return the result.
template <int kResiduals>
HWY_NOINLINE void SinkhornForward(int64_t residuals, float* HWY_RESTRICT square) {
  constexpr int64_t kMost = kResiduals == 0 ? kMostResiduals : kResiduals;
  const int64_t n = kResiduals == 0 ? residuals : kResiduals;
  FloatVec m[kMost * kMost], factors[kMost];
  LoadSquare(n, square, m);
  Exponentials(n, m);
  for (int64_t round = 0; round < kSinkhornRounds; ++round) {
    Divide</*kColumns=*/true>(n, m, factors);
    Divide</*kColumns=*/false>(n, m, factors);
  }
  StoreSquare(n, m, square);
}

// `gradient`: on entry that of SinkhornForward's result, on return that of `logits`.
template <int kResiduals>
HWY_NOINLINE void SinkhornBackward(int64_t residuals, const float* HWY_RESTRICT logits, float* HWY_RESTRICT gradient) {
  constexpr int64_t kMost = kResiduals == 0 ? kMostResiduals : kResiduals;
  const int64_t n = kResiduals == 0 ? residuals : kResiduals;
  FloatVec after[2 * kSinkhornRounds][kMost * kMost], factors[2 * kSinkhornRounds][kMost];
  FloatVec exponentials[kMost * kMost], m[kMost * kMost];
  LoadSquare(n, logits, m);
  Exponentials(n, m);
  CopySquare(n, m, exponentials);
  for (int64_t step = 0; step < 2 * kSinkhornRounds; step += 2) {
    Divide</*kColumns=*/true>(n, m, factors[step]);
    CopySquare(n, m, after[step]);
    Divide</*kColumns=*/false>(n, m, factors[step + 1]);
    CopySquare(n, m, after[step + 1]);
  }
  LoadSquare(n, gradient, m);
  for (int64_t step = 2 * kSinkhornRounds - 2; step >= 0; step -= 2) {
    DivideBackward</*kColumns=*/false>(n, after[step + 1], factors[step + 1], m);
    DivideBackward</*kColumns=*/true>(n, after[step], factors[step], m);
  }
#pragma GCC unroll 16
  for (int64_t k = 0; k < n * n; ++k) m[k] = hn::Mul(m[k], exponentials[k]);
  StoreSquare(n, m, gradient);
}

// ---- Maps ----

// Copies rows [first, last) of m, at most kRowLanes, to `lanes`: one row in each lane, 0 in the other lanes.
HWY_INLINE void RowsToLanes(const ConstMatrix& m, int64_t first, int64_t last, float* HWY_RESTRICT lanes) {
  for (int64_t l = 0; l < kRowLanes; ++l) {
    const float* const row = first + l < last ? m.row(first + l) : nullptr;
    for (int64_t k = 0; k < m.columns; ++k) lanes[k * kRowLanes + l] = row != nullptr ? row[k] : 0.0f;
  }
}

HWY_INLINE void LanesToRows(const float* HWY_RESTRICT lanes, int64_t first, int64_t last, const Matrix& m) {
  for (int64_t row = first; row < last; ++row) {
    float* const to = m.row(row);
    for (int64_t k = 0; k < m.columns; ++k) to[k] = lanes[k * kRowLanes + row - first];
  }
}

// Which gate multiplies element k of the maps.
HWY_INLINE int64_t GateOf(int64_t k, int64_t residuals) { return k < residuals ? 0 : k < 2 * residuals ? 1 : 2; }

// Computes elements [begin, m) of h [m, kRowLanes] (=). h may be the memory of `projected`.
template <typename Args>
HWY_INLINE void Logits(const Args& args, int64_t begin, int64_t residuals, FloatVec rstd, const float* projected,
                       float* h) {
  const FloatTag d;
  for (int64_t k = begin; k < HyperMaps(residuals); ++k) {
    const auto normed = hn::Mul(rstd, hn::Load(d, projected + k * kRowLanes));
    const auto gated = hn::Mul(hn::Set(d, args.gates[GateOf(k, residuals)]), normed);
    hn::Store(hn::Add(gated, hn::Set(d, args.bias[k])), d, h + k * kRowLanes);
  }
}

// h [m, kRowLanes] becomes the maps.
template <int kResiduals>
HWY_INLINE void MapsForward(int64_t residuals, float* h) {
  const FloatTag d;
  for (int64_t k = 0; k < 2 * residuals; ++k) {
    const auto sigmoid = Sigmoid(d, hn::Load(d, h + k * kRowLanes));
    hn::Store(hn::Mul(hn::Set(d, k < residuals ? 1.0f : 2.0f), sigmoid), d, h + k * kRowLanes);
  }
  SinkhornForward<kResiduals>(residuals, h + 2 * residuals * kRowLanes);
}

HWY_INLINE float DotColumns(const float* a, const float* b, int64_t width) {
  return SumColumns(width,
                    [&](auto d, int64_t c) HWY_ATTR { return hn::Mul(hn::LoadU(d, a + c), hn::LoadU(d, b + c)); });
}

// Returns n.
template <int kResiduals>
HWY_INLINE int64_t ResidualsOf(const ConstMatrix& x, int64_t width) {
  return kResiduals == 0 ? x.columns / width : kResiduals;
}

// Parts of the gradients of kRowLanes rows, one row in each lane.
struct LaneGradients {
  HWY_ALIGN float h[kMostMaps * kRowLanes];         // the gradient of h, and so of the bias
  HWY_ALIGN float of_gates[kMostMaps * kRowLanes];  // each element's part of its gate's gradient
  HWY_ALIGN float of_norm[kRowLanes];               // the factor of x in dx
};

// For rows [first, last), at most kRowLanes: sets `lanes`, and overwrites args.d_maps by the gradient of `projected`.
template <int kResiduals>
HWY_INLINE void MapsBackward(const HyperReadBackwardArgs& args, int64_t first, int64_t last, LaneGradients& lanes) {
  const FloatTag d;
  const int64_t width = args.du.columns, residuals = ResidualsOf<kResiduals>(args.x, width),
                count = HyperMaps(residuals);
  HWY_ALIGN float projected[kMostMaps * kRowLanes], maps[kMostMaps * kRowLanes], rstds[kRowLanes] = {};
  RowsToLanes(args.projected, first, last, projected);
  RowsToLanes(args.maps.Columns(0, 2 * residuals), first, last, maps);
  RowsToLanes(args.d_maps, first, last, lanes.h);
  for (int64_t row = first; row < last; ++row) {
    rstds[row - first] = args.rstd[row];
    for (int64_t i = 0; i < residuals; ++i) {
      lanes.h[i * kRowLanes + row - first] = DotColumns(args.du.row(row), args.x.row(row) + i * width, width);
    }
  }
  const auto one = hn::Set(d, 1.0f), rstd = hn::Load(d, rstds);
  for (int64_t k = 0; k < 2 * residuals; ++k) {
    const auto map = hn::Load(d, maps + k * kRowLanes);
    const auto rest = hn::Sub(one, hn::Mul(hn::Set(d, k < residuals ? 1.0f : 0.5f), map));
    hn::Store(hn::Mul(hn::Mul(hn::Load(d, lanes.h + k * kRowLanes), map), rest), d, lanes.h + k * kRowLanes);
  }
  Logits(args, /*begin=*/2 * residuals, residuals, rstd, projected, maps);
  SinkhornBackward<kResiduals>(residuals, maps + 2 * residuals * kRowLanes, lanes.h + 2 * residuals * kRowLanes);
  auto d_rstd = hn::Zero(d);
  for (int64_t k = 0; k < count; ++k) {
    const auto gate = hn::Set(d, args.gates[GateOf(k, residuals)]), product = hn::Load(d, projected + k * kRowLanes),
               dh = hn::Load(d, lanes.h + k * kRowLanes);
    hn::Store(hn::Mul(dh, hn::Mul(rstd, product)), d, lanes.of_gates + k * kRowLanes);
    d_rstd = hn::Add(d_rstd, hn::Mul(hn::Mul(gate, product), dh));
    hn::Store(hn::Mul(hn::Mul(gate, rstd), dh), d, projected + k * kRowLanes);
  }
  LanesToRows(projected, first, last, args.d_maps);
  const auto cube = hn::Mul(hn::Mul(hn::Mul(hn::Neg(d_rstd), rstd), rstd), rstd);
  hn::Store(hn::Div(cube, hn::Set(d, static_cast<float>(args.x.columns))), d, lanes.of_norm);
}

}  // namespace HWY_NAMESPACE
}  // namespace hadal
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
