// Several residual streams: how a sublayer reads from them and writes to them (manifold-constrained hyper-connections,
// mHC, arXiv 2512.24880; mHC-lite, arXiv 2601.05732; hyper-connections, arXiv 2409.19606).
//
//   X [n, d] the n residual streams of a token, x̃ all of them as one vector [n·d]; m = n² + 2n
//   h = α ⊙ (x̃·Wᵀ) / rms(x̃) + β                                 [l], W [l, n·d], β [l], α one gate for each map
//   H_pre = σ(h[0, n))    H_post = 2σ(h[n, 2n))    H_res = mix(h[2n, l)), [n, n] by rows, doubly stochastic
//   read   u = H_pre·X                                           [d], the input of F
//   write  X' = H_res·X + H_postᵀ·f                              f [d] the result of F
//   rms(x̃) = sqrt(mean(x̃²) + 1e-6)
//   mix, Sinkhorn (l = m): e^h, then 20 times each column divided by its sum, then each row by its sum
//   mix, permutations (l = 2n + n!): Σ_p w_p·P_p, w = softmax(h + 8·(1, 0, …)). P_p are the permutation matrices: row i
//     of P_p is 1 in column σ_p(i), with σ_p in lexicographic order, so that P_0 is the identity
// Source: the papers' equations; constants of Sinkhorn after Megatron-LM's hyper_connection.py, which keeps H_resᵀ.
// Megatron-LM also adds 1e-6 to H_pre and within Sinkhorn; hadal does not, so that H_pre = (1, 0, …) and H_res =
// identity are exact. A row or column whose sum is below 1e-30 becomes 0, without a gradient. Permutations after the
// authors' code (FFTYYY/mhc-lite, which also keeps H_resᵀ): there the biases of all permutations but the first begin
// with −8, here all begin with 0 and 8 is added to the first, which is the same function. With Sinkhorn, the columns
// of H_res sum to 1 only in the limit of many iterations. With permutations, rows and columns sum to 1 but for
// rounding, also those of products of many H_res.
// Shapes: R packed rows; X is [R, n·d], the residuals of a row side by side; `maps` [R, m] holds H_pre, H_post, H_res.
// The product x̃·Wᵀ is a linear layer's (linear.h), whose result is the argument `projected`.
// Storage: fp32, also on a device. (=): written; (+=): added to.
// Memory traffic, in rows of d: read n + 1, its product n; write 2n + 1. Backward of write: 3n + 2; of read 3n + 1, its
// two products 3n. With n = 4 that is 18 forward and 39 backward, where Post-LN has 4 and 4 (residual_norm.md).
// Numerics: fp32. Sums along a row in lanes, as in cpu/columns-inl.h; dot products of the backward in one chain; sums
// over residuals ascending (SumResiduals: pairs first). Gradients of α and β are summed in double over blocks of
// kHyperRowBlock rows (α: for each element of h, then over the elements of its map), then the blocks in ascending
// order. A row's results depend on no other row; the number of threads changes no bit. On a device:
// cuda/operations.h.
// REQUIRES: matching shapes (aborts with both values otherwise); contiguous rows. Blocking on the CPU, asynchronous on
// a device; allocates nothing.
#pragma once

#include "runtime/tensor.h"

namespace hadal {

class Stream;

inline constexpr int64_t kMostResiduals = 8;  // the largest n
inline constexpr int64_t kHyperRowBlock = 32;
inline constexpr int64_t kHyperGates = 3;  // α of H_pre, H_post, H_res

enum class HyperMixing : int32_t { kSinkhorn, kPermutations };  // how H_res becomes doubly stochastic
// Returns the largest n. kPermutations computes n! weights, so it allows fewer streams.
constexpr int64_t MostResiduals(HyperMixing mixing) { return mixing == HyperMixing::kSinkhorn ? kMostResiduals : 4; }
inline constexpr float kIdentityLogit = 8.0f;  // added to the logit of P_0
constexpr int64_t Permutations(int64_t n) { return n <= 1 ? 1 : n * Permutations(n - 1); }
// Returns σ_p of four elements: bits 2i and 2i + 1 are σ_p(i). For n < 4, σ_p is the last n of the four elements,
// less 4 − n, because the first n! permutations of four leave the first 4 − n elements in place.
constexpr uint32_t PermutationOfFour(int32_t p) {
  constexpr int32_t kLater[] = {6, 2, 1, 1};  // number of permutations of the elements after i
  uint32_t permutation = 0, unused = 0b11100100;
  for (int32_t i = 0; i < 4; ++i) {
    const int32_t shift = p / kLater[i] * 2;
    const uint32_t below = (1u << shift) - 1;
    p %= kLater[i];
    permutation |= (unused >> shift & 3u) << (2 * i);
    unused = (unused & below) | (unused >> 2 & ~below);
  }
  return permutation;
}

// Returns m, the number of elements of a row's three maps.
constexpr int64_t HyperMaps(int64_t residuals) { return residuals * (residuals + 2); }
// Returns l, the number of logits h from which a row's maps are computed.
constexpr int64_t HyperLogits(HyperMixing mixing, int64_t residuals) {
  return mixing == HyperMixing::kSinkhorn ? HyperMaps(residuals) : 2 * residuals + Permutations(residuals);
}

struct HyperReadForwardArgs {
  ConstMatrix x;  // X [R, n·d]
  HyperMixing mixing = HyperMixing::kSinkhorn;
  ConstMatrix projected;    // x̃·Wᵀ [R, l]
  ConstVector gates, bias;  // α [3], β [l]
  Matrix maps;              // [R, m] (=)
  Vector rstd;              // 1/rms [R] (=)
  Matrix u;                 // [R, d] (=)
};
void HyperReadForward(const Stream& stream, const HyperReadForwardArgs& args);

struct HyperWriteForwardArgs {
  ConstMatrix x;     // X [R, n·d]
  ConstMatrix maps;  // [R, m]
  ConstMatrix f;     // [R, d]
  Matrix y;          // X' [R, n·d] (=); may not alias x
};
void HyperWriteForward(const Stream& stream, const HyperWriteForwardArgs& args);

struct HyperWriteBackwardArgs {
  ConstMatrix dy;  // [R, n·d]
  ConstMatrix x, maps, f;
  Matrix dx;      // [R, n·d] (=) H_resᵀ·dy; may alias dy
  Matrix df;      // [R, d] (=)
  Matrix d_maps;  // [R, m] (=) of H_post and H_res; H_pre's columns are not written
};
void HyperWriteBackward(const Stream& stream, const HyperWriteBackwardArgs& args);

struct HyperReadBackwardArgs {
  ConstMatrix du;  // [R, d]
  ConstMatrix x;
  HyperMixing mixing = HyperMixing::kSinkhorn;
  ConstMatrix projected, maps;
  ConstVector rstd, gates, bias;
  ConstMatrix d_maps;      // [R, m] as HyperWriteBackward wrote it
  Matrix d_projected;      // [R, l] (=); with kSinkhorn it may be d_maps
  Matrix dx;               // [R, n·d] (+=); the part through `projected` is missing: a linear layer's backward adds it
  Vector d_gates, d_bias;  // [3], [l] (+=)
  Vector partials;         // scratch, HyperPartials(R, l) floats
};
void HyperReadBackward(const Stream& stream, const HyperReadBackwardArgs& args);

constexpr int64_t HyperPartials(int64_t rows, int64_t logits) {
  return (rows + kHyperRowBlock - 1) / kHyperRowBlock * (logits + kHyperGates);
}

// The start and the end of a stack of sublayers: X = n copies of gain·x, and y = gain·Σ_i X_i. With the same gain, the
// gradient of each operation is computed by the other.
struct CopyToResidualsArgs {
  ConstMatrix x;  // [R, d]
  float gain = 1.0f;
  Matrix y;  // [R, n·d] (=); may not alias x
};
void CopyToResiduals(const Stream& stream, const CopyToResidualsArgs& args);

struct SumResidualsArgs {
  ConstMatrix x;  // [R, n·d]
  float gain = 1.0f;
  Matrix y;  // [R, d] (=); may not alias x
};
void SumResiduals(const Stream& stream, const SumResidualsArgs& args);

}  // namespace hadal
