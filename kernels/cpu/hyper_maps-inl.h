// The maps of hyper-connections (kernels/hyper_connection.h) of several rows at once, one row in each lane of a vector:
// MapsForward, MapsBackward, and Sinkhorn's normalisation, which is most of their work. One row at a time, a step of
// Sinkhorn takes 300 scalar instructions. Without Sinkhorn (mHC-lite) the square is a weighted sum of permutations,
// added in ascending order.
//
// Shapes: a row's square [n, n] by rows; element k of the row in lane l is at [k · kRowLanes + l], aligned.
// Numerics: fp32, sums ascending. A row's bits depend neither on its lane nor on other rows. A NaN stays in its row.
// A sum of Sinkhorn's within 2^-22 of 1 counts as 1. Rounds after one that changes no element are left out.
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

#include <algorithm>
#include <array>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/cpu/columns-inl.h"
#include "kernels/cpu/exp-inl.h"
#include "kernels/cpu/lane_sums-inl.h"
#include "kernels/cpu/tile_copy-inl.h"
#include "kernels/hyper_connection.h"

HWY_BEFORE_NAMESPACE();
namespace hadal {
namespace HWY_NAMESPACE {

inline constexpr int64_t kMostMaps = HyperMaps(kMostResiduals);
inline constexpr int64_t kRowLanes = hn::MaxLanes(FloatTag());
static_assert(kHyperRowBlock % kRowLanes == 0);
inline constexpr int64_t kSinkhornRounds = 20;
inline constexpr float kLeastSinkhornSum = 1e-30f, kSinkhornRest = 0x1p-22f;

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

// Divides each column of m, or each row, by its sum; factors [n] (=): the reciprocals of the sums. Returns whether m
// keeps its bits.
template <bool kColumns>
HWY_INLINE bool Divide(int64_t n, FloatVec* m, FloatVec* factors) {
  const FloatTag d;
  const FloatVec one = hn::Set(d, 1.0f);
  FloatVec farthest = hn::Zero(d);
  const int64_t between_groups = kColumns ? 1 : n, between_elements = kColumns ? n : 1;
#pragma GCC unroll 4
  for (int64_t g = 0; g < n; ++g) {
    FloatVec* const group = m + g * between_groups;
    FloatVec sum = group[0];
#pragma GCC unroll 4
    for (int64_t k = 1; k < n; ++k) sum = hn::Add(sum, group[k * between_elements]);
    const FloatVec rest = hn::Abs(hn::Sub(sum, one));
    const auto vanishes = hn::Lt(sum, hn::Set(d, kLeastSinkhornSum)), is_one = hn::Le(rest, hn::Set(d, kSinkhornRest));
    factors[g] = hn::IfThenElse(is_one, one, hn::IfThenZeroElse(vanishes, hn::Div(one, sum)));
    farthest = hn::Max(farthest, rest);
#pragma GCC unroll 4
    for (int64_t k = 0; k < n; ++k) group[k * between_elements] = hn::Mul(group[k * between_elements], factors[g]);
  }
  return hn::AllTrue(d, hn::Le(farthest, hn::Set(d, kSinkhornRest)));
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
    const bool columns = Divide</*kColumns=*/true>(n, m, factors), rows = Divide</*kColumns=*/false>(n, m, factors);
    if (columns && rows) break;
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
  int64_t rounds = 0;  // the rest is as the last of these
  for (bool keeps = false; !keeps && rounds < kSinkhornRounds; ++rounds) {
    const bool columns = Divide</*kColumns=*/true>(n, m, factors[2 * rounds]);
    CopySquare(n, m, after[2 * rounds]);
    keeps = Divide</*kColumns=*/false>(n, m, factors[2 * rounds + 1]) && columns;
    CopySquare(n, m, after[2 * rounds + 1]);
  }
  LoadSquare(n, gradient, m);
  for (int64_t round = kSinkhornRounds - 1; round >= 0; --round) {
    const int64_t step = 2 * std::min(round, rounds - 1);
    DivideBackward</*kColumns=*/false>(n, after[step + 1], factors[step + 1], m);
    DivideBackward</*kColumns=*/true>(n, after[step], factors[step], m);
  }
#pragma GCC unroll 16
  for (int64_t k = 0; k < n * n; ++k) m[k] = hn::Mul(m[k], exponentials[k]);
  StoreSquare(n, m, gradient);
}

// ---- Sums of permutations ----

inline constexpr int64_t kMostPermutations = Permutations(MostResiduals(HyperMixing::kPermutations));

// Calls visit(p, k) for each element k of the square that permutation matrix p sets to 1.
template <typename Visit>
HWY_INLINE void ForEachPermuted(int64_t n, const Visit& visit) {
  static constexpr auto kOfFour = [] {
    std::array<uint8_t, kMostPermutations> of_four = {};
    for (size_t p = 0; p < of_four.size(); ++p) of_four[p] = PermutationOfFour(static_cast<int32_t>(p));
    return of_four;
  }();
  const int64_t skipped = 4 - n;
  for (int64_t p = 0; p < Permutations(n); ++p) {
    for (int64_t i = 0; i < n; ++i) visit(p, i * n + (kOfFour[p] >> 2 * (i + skipped) & 3) - skipped);
  }
}

// weights [n!] (=): softmax(logits + kIdentityLogit·(1, 0, …)).
HWY_INLINE void PermutationWeights(int64_t n, const float* HWY_RESTRICT logits, FloatVec* weights) {
  const FloatTag d;
  const int64_t count = Permutations(n);
  FloatVec largest = weights[0] = hn::Add(hn::Load(d, logits), hn::Set(d, kIdentityLogit));
  for (int64_t p = 1; p < count; ++p) {
    weights[p] = hn::Load(d, logits + p * kRowLanes);
    largest = hn::Max(largest, weights[p]);
  }
  FloatVec sum = hn::Zero(d);
  for (int64_t p = 0; p < count; ++p) {
    weights[p] = Exp(d, hn::Sub(weights[p], largest));
    sum = hn::Add(sum, weights[p]);
  }
  const FloatVec factor = hn::Div(hn::Set(d, 1.0f), sum);
  for (int64_t p = 0; p < count; ++p) weights[p] = hn::Mul(weights[p], factor);
}

// `square`: on entry the logits [n!], on return the result [n²].
HWY_NOINLINE void PermutationsForward(int64_t n, float* HWY_RESTRICT square) {
  const FloatTag d;
  FloatVec weights[kMostPermutations];
  PermutationWeights(n, square, weights);
  for (int64_t k = 0; k < n * n; ++k) hn::Store(hn::Zero(d), d, square + k * kRowLanes);
  ForEachPermuted(n, [&](int64_t p, int64_t k) HWY_ATTR {
    float* const at = square + k * kRowLanes;
    hn::Store(hn::Add(hn::Load(d, at), weights[p]), d, at);
  });
}

// `gradient`: on entry that of PermutationsForward's result [n²], on return that of `logits` [n!].
HWY_NOINLINE void PermutationsBackward(int64_t n, const float* HWY_RESTRICT logits, float* HWY_RESTRICT gradient) {
  const FloatTag d;
  const int64_t count = Permutations(n);
  FloatVec weights[kMostPermutations], slopes[kMostPermutations], mean = hn::Zero(d);
  PermutationWeights(n, logits, weights);
  for (int64_t p = 0; p < count; ++p) slopes[p] = hn::Zero(d);
  ForEachPermuted(
      n, [&](int64_t p, int64_t k) HWY_ATTR { slopes[p] = hn::Add(slopes[p], hn::Load(d, gradient + k * kRowLanes)); });
  // Beside the first, whose weight is near 1 at first: no digits cancel in its gradient.
  for (int64_t p = count - 1; p >= 0; --p) slopes[p] = hn::Sub(slopes[p], slopes[0]);
  for (int64_t p = 0; p < count; ++p) mean = hn::MulAdd(weights[p], slopes[p], mean);
  for (int64_t p = 0; p < count; ++p) {
    hn::Store(hn::Mul(weights[p], hn::Sub(slopes[p], mean)), d, gradient + p * kRowLanes);
  }
}

// ---- Maps ----

// Copies rows [first, last) of m, at most kRowLanes, to `lanes`: one row in each lane, the last in those that are left.
HWY_NOINLINE void RowsToLanes(const ConstMatrix& m, int64_t first, int64_t last, float* HWY_RESTRICT lanes) {
  TransposeTile(m.Rows(first, last - first), 1.0f, lanes, kRowLanes);
}

// to [rows, kMostMaps] (=): the first `rows` lanes of `lanes` [columns, kRowLanes].
HWY_NOINLINE void LanesToRows(const float* HWY_RESTRICT lanes, int64_t rows, int64_t columns, float* HWY_RESTRICT to) {
  TransposeTile(ConstMatrix(lanes, columns, rows, kRowLanes), 1.0f, to, kMostMaps);
}

// Which gate multiplies element k of the maps.
HWY_INLINE int64_t GateOf(int64_t k, int64_t residuals) { return k < residuals ? 0 : k < 2 * residuals ? 1 : 2; }

// Computes elements [begin, l) of h [l, kRowLanes] (=). h may be the memory of `projected`.
template <typename Args>
HWY_INLINE void Logits(const Args& args, int64_t begin, int64_t residuals, FloatVec rstd, const float* projected,
                       float* h) {
  const FloatTag d;
  for (int64_t k = begin; k < args.projected.columns; ++k) {
    const auto normed = hn::Mul(rstd, hn::Load(d, projected + k * kRowLanes));
    const auto gated = hn::Mul(hn::Set(d, args.gates[GateOf(k, residuals)]), normed);
    hn::Store(hn::Add(gated, hn::Set(d, args.bias[k])), d, h + k * kRowLanes);
  }
}

// h [l, kRowLanes] becomes the maps [m, kRowLanes].
template <int kResiduals>
HWY_INLINE void MapsForward(HyperMixing mixing, int64_t residuals, float* h) {
  const FloatTag d;
  for (int64_t k = 0; k < 2 * residuals; ++k) {
    const auto sigmoid = Sigmoid(d, hn::Load(d, h + k * kRowLanes));
    hn::Store(hn::Mul(hn::Set(d, k < residuals ? 1.0f : 2.0f), sigmoid), d, h + k * kRowLanes);
  }
  float* const square = h + 2 * residuals * kRowLanes;
  if (mixing == HyperMixing::kPermutations) return PermutationsForward(residuals, square);
  SinkhornForward<kResiduals>(residuals, square);
}

// Adds lanes i and i + kWidth of each of kCount vectors, then halves kWidth, down to 1. The sum of vector k is in the
// lane that is k with its bits in reverse.
template <int kWidth, int kCount>
HWY_INLINE FloatVec SumHalves(const FloatVec (&vectors)[kCount]) {
  constexpr int kPairs = (kCount + 1) / 2;
  FloatVec sums[kPairs];
#pragma GCC unroll 8
  for (int i = 0; i < kPairs; ++i) {
    sums[i] = PairSums<kWidth>(vectors[2 * i], vectors[std::min(2 * i + 1, kCount - 1)]);
  }
  if constexpr (kWidth == 1) {
    static_assert(kPairs == 1);
    return sums[0];
  } else {
    return SumHalves<kWidth / 2>(sums);
  }
}

// dots[t] = Σ_c a[c]·b(t)[c], c < width, t < kTerms ≤ kSumLanes: column c in lane c mod 16 of one chain of fused
// multiply-adds in ascending order, then the lanes as PartialSums::Sum.
template <int kTerms, typename Of>
HWY_INLINE void Dots(const float* a, const Of& b, int64_t width, float (&dots)[kTerms]) {
  const FloatTag d;
  PartialSums sums[kTerms];
#pragma GCC unroll 8
  for (int t = 0; t < kTerms; ++t) sums[t].Clear();
  int64_t c = 0;
  for (; c + kSumLanes <= width; c += kSumLanes) {
#pragma GCC unroll 4
    for (int v = 0; v < PartialSums::kVectors; ++v) {
      const FloatVec factor = hn::LoadU(d, a + c + v * kFloatLanes);
#pragma GCC unroll 8
      for (int t = 0; t < kTerms; ++t) {
        sums[t].vectors[v] = hn::MulAdd(factor, hn::LoadU(d, b(t) + c + v * kFloatLanes), sums[t].vectors[v]);
      }
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < PartialSums::kVectors; ++v, c += kFloatLanes) {
    if (c >= width) break;
    const int64_t count = std::min<int64_t>(width - c, kFloatLanes);
    const FloatVec factor = LoadPartial(d, a + c, count, 0.0f);
#pragma GCC unroll 8
    for (int t = 0; t < kTerms; ++t) {
      sums[t].vectors[v] = hn::MulAdd(factor, LoadPartial(d, b(t) + c, count, 0.0f), sums[t].vectors[v]);
    }
  }
  constexpr int kAtOnce = std::min(kTerms, kFloatLanes);
  for (int first = 0; first < kTerms; first += kAtOnce) {
    FloatVec vectors[kAtOnce];
#pragma GCC unroll 8
    for (int t = 0; t < kAtOnce; ++t) {
      FloatVec(&of_term)[PartialSums::kVectors] = sums[std::min(first + t, kTerms - 1)].vectors;
      for (int half = PartialSums::kVectors / 2; half > 0; half /= 2) {
        for (int v = 0; v < half; ++v) of_term[v] = hn::Add(of_term[v], of_term[v + half]);
      }
      vectors[t] = of_term[0];
    }
    HWY_ALIGN float lanes[kFloatLanes];
    hn::Store(SumHalves<kFloatLanes / 2>(vectors), d, lanes);
    for (int t = 0; t < std::min(kAtOnce, kTerms - first); ++t) {
      int lane = 0;
      for (int bit = 1; bit < kFloatLanes; bit *= 2) lane += (t & bit) != 0 ? kFloatLanes / 2 / bit : 0;
      dots[first + t] = lanes[lane];
    }
  }
}

// Returns n.
template <int kResiduals>
HWY_INLINE int64_t ResidualsOf(const ConstMatrix& x, int64_t width) {
  return kResiduals == 0 ? x.columns / width : kResiduals;
}

// Parts of the gradients of kRowLanes rows.
struct RowGradients {
  HWY_ALIGN float h[kRowLanes * kMostMaps];  // the gradient of h [rows, kMostMaps], and so of the bias
  HWY_ALIGN float of_norm[kRowLanes];        // the factor of x in dx
};

// For rows [first, last), at most kRowLanes.
template <int kResiduals>
HWY_INLINE void MapsBackward(const HyperReadBackwardArgs& args, int64_t first, int64_t last, RowGradients& rows) {
  const FloatTag d;
  const int64_t width = args.du.columns, residuals = ResidualsOf<kResiduals>(args.x, width),
                count = args.projected.columns;
  HWY_ALIGN float projected[kMostMaps * kRowLanes], maps[kMostMaps * kRowLanes], h[kMostMaps * kRowLanes];
  HWY_ALIGN float rstds[kRowLanes] = {};
  RowsToLanes(args.projected, first, last, projected);
  RowsToLanes(args.maps.Columns(0, 2 * residuals), first, last, maps);
  RowsToLanes(args.d_maps, first, last, h);
  for (int64_t row = first; row < last; ++row) {
    rstds[row - first] = args.rstd[row];
    constexpr int kTerms = kResiduals == 0 ? 1 : kResiduals;
    for (int64_t i = 0; i < residuals; i += kTerms) {
      float dots[kTerms];
      Dots(
          args.du.row(row), [&](int64_t t) { return args.x.row(row) + (i + t) * width; }, width, dots);
      for (int64_t t = 0; t < kTerms; ++t) h[(i + t) * kRowLanes + row - first] = dots[t];
    }
  }
  const auto one = hn::Set(d, 1.0f), rstd = hn::Load(d, rstds);
  for (int64_t k = 0; k < 2 * residuals; ++k) {
    const auto map = hn::Load(d, maps + k * kRowLanes);
    const auto rest = hn::Sub(one, hn::Mul(hn::Set(d, k < residuals ? 1.0f : 0.5f), map));
    hn::Store(hn::Mul(hn::Mul(hn::Load(d, h + k * kRowLanes), map), rest), d, h + k * kRowLanes);
  }
  Logits(args, /*begin=*/2 * residuals, residuals, rstd, projected, maps);
  const float* const logits = maps + 2 * residuals * kRowLanes;
  float* const of_square = h + 2 * residuals * kRowLanes;
  if (args.mixing == HyperMixing::kPermutations) {
    PermutationsBackward(residuals, logits, of_square);
  } else {
    SinkhornBackward<kResiduals>(residuals, logits, of_square);
  }
  auto d_rstd = hn::Zero(d);
  for (int64_t k = 0; k < count; ++k) {
    const auto gate = hn::Set(d, args.gates[GateOf(k, residuals)]), product = hn::Load(d, projected + k * kRowLanes),
               dh = hn::Load(d, h + k * kRowLanes);
    d_rstd = hn::Add(d_rstd, hn::Mul(hn::Mul(gate, product), dh));
  }
  LanesToRows(h, last - first, count, rows.h);
  const auto cube = hn::Mul(hn::Mul(hn::Mul(hn::Neg(d_rstd), rstd), rstd), rstd);
  hn::Store(hn::Div(cube, hn::Set(d, static_cast<float>(args.x.columns))), d, rows.of_norm);
}

}  // namespace HWY_NAMESPACE
}  // namespace hadal
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
