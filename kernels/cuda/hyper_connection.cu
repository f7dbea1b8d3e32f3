#include "kernels/cuda/operations.h"

#include "kernels/cuda/column_merge.h"
#include "kernels/cuda/row_team.h"
#include "kernels/cuda/thread_layer.h"

namespace hadal::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
constexpr int kMost = static_cast<int>(kMostResiduals);
constexpr int kMostMaps = static_cast<int>(HyperMaps(kMostResiduals));
constexpr int kRounds = 20;  // of Sinkhorn's
constexpr float kRmsEpsilon = 1e-6f, kLeastSum = 1e-30f;

HADAL_DEVICE int CountOfPermutations(int n) { return n == 4 ? 24 : n == 3 ? 6 : n; }
// Eight permutations of four, from `first`.
constexpr uint64_t EightPermutations(int first) {
  uint64_t eight = 0;
  for (int p = 0; p < 8; ++p) eight |= uint64_t{PermutationOfFour(first + p)} << (8 * p);
  return eight;
}
constexpr uint64_t kPermutations0 = EightPermutations(0), kPermutations8 = EightPermutations(8),
                   kPermutations16 = EightPermutations(16);
// σ_p(i) of n elements.
HADAL_DEVICE int Permuted(int n, int p, int i) {
  const uint64_t eight = p < 8 ? kPermutations0 : p < 16 ? kPermutations8 : kPermutations16;
  return static_cast<int>(eight >> (p % 8 * 8 + (i + 4 - n) * 2) & 3) - (4 - n);
}

// What a lane has of a row's maps: map[0] of H_pre or H_post, and of H_res the elements (i, j) and (i + 4, j), with
// i = lane / 8 and j = lane % 8; and of h what these are computed from, or the logit of permutation `lane`. −1: none.
struct MapLanes {
  int n, map[3], logit[3], gate[3];
};
HADAL_DEVICE MapLanes ThisLanes(int n, HyperMixing mixing) {
  const int lane = ThreadIndex() % kWarp, i = lane / 8, j = lane % 8;
  MapLanes lanes = {n, {-1, -1, -1}, {-1, -1, -1}, {lane < n ? 0 : 1, 2, 2}};
  if (lane < 2 * n) lanes.map[0] = lanes.logit[0] = lane;
  if (i < n && j < n) lanes.map[1] = lanes.logit[1] = 2 * n + i * n + j;
  if (i + 4 < n && j < n) lanes.map[2] = lanes.logit[2] = 2 * n + (i + 4) * n + j;
  if (mixing == HyperMixing::kPermutations) lanes.logit[1] = lane < CountOfPermutations(n) ? 2 * n + lane : -1;
  return lanes;
}

// Column c of each stream of a row; 0 where there is none.
HADAL_DEVICE void LoadResiduals(DevicePointer<const float> row, int64_t width, int64_t c, int n, float (&x)[kMost]) {
  HADAL_UNROLL for (int i = 0; i < kMost; ++i) x[i] = i < n ? Load(row + (i * width + c)) : 0.0f;
}

// h of the lane's elements, where it has them.
template <typename Args>
HADAL_DEVICE void Logits(const Args& args, int64_t row, float rstd, const MapLanes& lanes, float (&h)[3]) {
  HADAL_UNROLL for (int s = 0; s < 3; ++s) {
    const int k = lanes.logit[s];
    h[s] = 0.0f;
    if (k >= 0) {
      h[s] = MulAdd(Load(ViewOf(args.gates) + lanes.gate[s]), rstd * Load(ViewOf(args.projected).row(row) + k),
                    Load(ViewOf(args.bias) + k));
    }
  }
}

// Sums over each column of the square, or each row; elements that are not there are 0.
template <bool kColumns>
HADAL_DEVICE void GroupSums(int n, const float (&v)[2], float (&sums)[2]) {
  if constexpr (kColumns) {
    float sum = v[0] + v[1];
    sum += ShuffleXor(sum, 8);
    sum += ShuffleXor(sum, 16);
    sums[0] = sums[1] = sum;
  } else {
    HADAL_UNROLL for (int s = 0; s < 2; ++s) {
      sums[s] = v[s];
      if (s == 1 && n <= 4) return;
      HADAL_UNROLL for (int mask = 4; mask > 0; mask /= 2) sums[s] += ShuffleXor(sums[s], mask);
    }
  }
}
HADAL_DEVICE float FactorOf(float sum) { return sum < kLeastSum ? 0.0f : 1.0f / sum; }

template <bool kColumns>
HADAL_DEVICE void Divide(int n, const float (&v)[2], float (&result)[2]) {
  float sums[2];
  GroupSums<kColumns>(n, v, sums);
  HADAL_UNROLL for (int s = 0; s < 2; ++s) result[s] = v[s] * FactorOf(sums[s]);
}

// d becomes the gradient of `before` from that of `after`.
template <bool kColumns>
HADAL_DEVICE void DivideBackward(int n, const float (&before)[2], const float (&after)[2], const MapLanes& lanes,
                                 float (&d)[2]) {
  float sums[2], dots[2];
  const float products[2] = {d[0] * after[0], d[1] * after[1]};
  GroupSums<kColumns>(n, before, sums);
  GroupSums<kColumns>(n, products, dots);
  HADAL_UNROLL for (int s = 0; s < 2; ++s) {
    d[s] = lanes.map[s + 1] < 0 ? 0.0f : (d[s] - dots[s]) * FactorOf(sums[s]);
  }
}

// e^(h − the column's largest).
HADAL_DEVICE void Exponentials(const MapLanes& lanes, const float (&h)[3], float (&e)[2]) {
  float largest = lanes.map[1] < 0 ? -INFINITY : h[1];
  if (lanes.map[2] >= 0 && h[2] > largest) largest = h[2];
  HADAL_UNROLL for (int mask = 16; mask >= 8; mask /= 2) {
    const float other = ShuffleXor(largest, mask);
    if (other > largest) largest = other;
  }
  HADAL_UNROLL for (int s = 0; s < 2; ++s) e[s] = lanes.map[s + 1] < 0 ? 0.0f : Exp(h[s + 1] - largest);
}

HADAL_DEVICE void SinkhornForward(const MapLanes& lanes, const float (&h)[3], float (&result)[2]) {
  Exponentials(lanes, h, result);
  for (int round = 0; round < kRounds; ++round) {
    Divide<true>(lanes.n, result, result);
    Divide<false>(lanes.n, result, result);
  }
}

// d: of the result; becomes that of h.
HADAL_DEVICE void SinkhornBackward(const MapLanes& lanes, const float (&h)[3], float (&d)[2]) {
  float at[2 * kRounds + 1][2];
  Exponentials(lanes, h, at[0]);
  HADAL_UNROLL for (int round = 0; round < kRounds; ++round) {
    Divide<true>(lanes.n, at[2 * round], at[2 * round + 1]);
    Divide<false>(lanes.n, at[2 * round + 1], at[2 * round + 2]);
  }
  HADAL_UNROLL for (int round = kRounds - 1; round >= 0; --round) {
    DivideBackward<false>(lanes.n, at[2 * round + 1], at[2 * round + 2], lanes, d);
    DivideBackward<true>(lanes.n, at[2 * round], at[2 * round + 1], lanes, d);
  }
  HADAL_UNROLL for (int s = 0; s < 2; ++s) d[s] *= at[0][s];
}

// The weight of the lane's permutation; 0: it has none.
HADAL_DEVICE float PermutationWeight(const MapLanes& lanes, const float (&h)[3]) {
  const float logit = ThreadIndex() % kWarp == 0 ? h[1] + kIdentityLogit : h[1];
  float largest = lanes.logit[1] < 0 ? -INFINITY : logit;
  HADAL_UNROLL for (int mask = kWarp / 2; mask > 0; mask /= 2) {
    const float other = ShuffleXor(largest, mask);
    if (other > largest) largest = other;
  }
  const float e = lanes.logit[1] < 0 ? 0.0f : Exp(logit - largest);
  return e / SumOfWarp(e);
}

HADAL_DEVICE void PermutationsForward(const MapLanes& lanes, const float (&h)[3], float (&result)[2]) {
  const int lane = ThreadIndex() % kWarp;
  const float weight = PermutationWeight(lanes, h);
  result[0] = result[1] = 0.0f;
  for (int p = 0; p < CountOfPermutations(lanes.n); ++p) {
    const float of_p = ShuffleFrom(weight, p);
    if (Permuted(lanes.n, p, lane / 8) == lane % 8) result[0] += of_p;
  }
}

// d: of the result; becomes that of h.
HADAL_DEVICE void PermutationsBackward(const MapLanes& lanes, const float (&h)[3], float (&d)[2]) {
  const float weight = PermutationWeight(lanes, h);
  const int p = lanes.logit[1] < 0 ? 0 : ThreadIndex() % kWarp;
  float slope = 0.0f;
  for (int i = 0; i < lanes.n; ++i) slope += ShuffleFrom(d[0], 8 * i + Permuted(lanes.n, p, i));
  slope -= ShuffleFrom(slope, 0);  // the first has a weight near 1 at first: no digits cancel in its gradient
  const float mean = SumOfWarp(weight * slope);
  d[0] = weight * (slope - mean), d[1] = 0.0f;
}

HADAL_DEVICE void MixingForward(HyperMixing mixing, const MapLanes& lanes, const float (&h)[3], float (&result)[2]) {
  if (mixing == HyperMixing::kPermutations) return PermutationsForward(lanes, h, result);
  SinkhornForward(lanes, h, result);
}
HADAL_DEVICE void MixingBackward(HyperMixing mixing, const MapLanes& lanes, const float (&h)[3], float (&d)[2]) {
  if (mixing == HyperMixing::kPermutations) return PermutationsBackward(lanes, h, d);
  SinkhornBackward(lanes, h, d);
}

// Warp w of block x: row x·kWarps + w.
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kThreads) HyperReadForwardKernel(HyperReadForwardArgs args, int residuals) {
  const int64_t row = BlockX() * kWarps + ThreadIndex() / kWarp, columns = args.x.columns, width = args.u.columns;
  if (row >= args.u.rows) return;  // all lanes of the warp
  const int lane = ThreadIndex() % kWarp;
  const DevicePointer<const float> x = ViewOf(args.x).row(row);
  const DevicePointer<float> u = ViewOf(args.u).row(row), map_row = ViewOf(args.maps).row(row);
  float squares = 0.0f;
  for (int64_t c = lane; c < columns; c += kWarp) {
    const float value = Load(x + c);
    squares = MulAdd(value, value, squares);
  }
  const float rstd = InverseRoot(SumOfWarp(squares) / static_cast<float>(columns) + kRmsEpsilon);
  if (lane == 0) Store(ViewOf(args.rstd) + row, rstd);
  const MapLanes lanes = ThisLanes(residuals, args.mixing);
  float h[3], square[2];
  Logits(args, row, rstd, lanes, h);
  MixingForward(args.mixing, lanes, h, square);
  const float sigmoid = 1.0f / (1.0f + Exp(-h[0])),
              maps[3] = {lane < lanes.n ? sigmoid : 2.0f * sigmoid, square[0], square[1]};
  HADAL_UNROLL for (int s = 0; s < 3; ++s) {
    if (lanes.map[s] >= 0) Store(map_row + lanes.map[s], maps[s]);
  }
  float pre[kMost];
  HADAL_UNROLL for (int i = 0; i < kMost; ++i) pre[i] = ShuffleFrom(maps[0], i);
  for (int64_t c = lane; c < width; c += kWarp) {
    float sum = pre[0] * Load(x + c);
    HADAL_UNROLL for (int i = 1; i < kMost; ++i) {
      if (i < lanes.n) sum = MulAdd(pre[i], Load(x + (i * width + c)), sum);
    }
    Store(u + c, sum);
  }
}

// A thread has a column of all residuals of a row.
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kThreads) HyperWriteForwardKernel(HyperWriteForwardArgs args, int residuals) {
  const int64_t at = BlockX() * kThreads + ThreadIndex(), row = at / args.f.columns, c = at % args.f.columns;
  if (row >= args.f.rows) return;
  const int n = residuals;
  const DevicePointer<const float> post = ViewOf(args.maps).row(row) + n;
  float x[kMost];
  LoadResiduals(ViewOf(args.x).row(row), args.f.columns, c, n, x);
  const float f = Load(ViewOf(args.f).row(row) + c);
  for (int i = 0; i < n; ++i) {
    const DevicePointer<const float> res = post + (n + i * n);
    float sum = Load(res) * x[0];
    HADAL_UNROLL for (int j = 1; j < kMost; ++j) {
      if (j < n) sum = MulAdd(Load(res + j), x[j], sum);
    }
    Store(ViewOf(args.y).row(row) + (i * args.f.columns + c), MulAdd(Load(post + i), f, sum));
  }
}

// Warp w of block x: row x·kWarps + w. A lane reads its columns of every stream before it writes them.
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kThreads) HyperWriteBackwardKernel(HyperWriteBackwardArgs args, int residuals) {
  const int64_t row = BlockX() * kWarps + ThreadIndex() / kWarp;
  if (row >= args.f.rows) return;  // all lanes of the warp
  const int n = residuals, lane = ThreadIndex() % kWarp;
  const DevicePointer<const float> post = ViewOf(args.maps).row(row) + n, res = post + n;
  float dots[kMost][kMost + 1] = {};  // of dy_i with each x_j, then with f
  for (int64_t c = lane; c < args.f.columns; c += kWarp) {
    float x[kMost], dx[kMost] = {}, df = 0.0f;
    LoadResiduals(ViewOf(args.x).row(row), args.f.columns, c, n, x);
    const float f = Load(ViewOf(args.f).row(row) + c);
    HADAL_UNROLL for (int i = 0; i < kMost; ++i) {
      if (i >= n) continue;
      const float dy = Load(ViewOf(args.dy).row(row) + (i * args.f.columns + c));
      HADAL_UNROLL for (int j = 0; j < kMost; ++j) {
        if (j >= n) continue;
        dots[i][j] = MulAdd(dy, x[j], dots[i][j]);
        dx[j] = MulAdd(Load(res + (i * n + j)), dy, dx[j]);
      }
      dots[i][kMost] = MulAdd(dy, f, dots[i][kMost]);
      df = MulAdd(Load(post + i), dy, df);
    }
    HADAL_UNROLL for (int j = 0; j < kMost; ++j) {
      if (j < n) Store(ViewOf(args.dx).row(row) + (j * args.f.columns + c), dx[j]);
    }
    Store(ViewOf(args.df).row(row) + c, df);
  }
  const DevicePointer<float> d_post = ViewOf(args.d_maps).row(row) + n;  // and d_res behind it
  HADAL_UNROLL for (int i = 0; i < kMost; ++i) {
    if (i >= n) continue;
    HADAL_UNROLL for (int j = 0; j <= kMost; ++j) {
      if (j >= n && j < kMost) continue;
      const float dot = SumOfWarp(dots[i][j]);
      if (lane == 0) Store(d_post + (j < n ? n + i * n + j : i), dot);
    }
  }
}

// One row: the gradient of `projected`, and dx. Adds the gradients of the lane's elements of h to `sums`, and what they
// are of their gates to `gates`: of element 0, and of the others.
HADAL_DEVICE void ReadBackwardRow(const HyperReadBackwardArgs& args, int64_t row, const MapLanes& lanes,
                                  float (&sums)[3], float (&gates)[2]) {
  const int lane = ThreadIndex() % kWarp;
  const DevicePointer<const float> x = ViewOf(args.x).row(row), du = ViewOf(args.du).row(row),
                                   maps = ViewOf(args.maps).row(row);
  float dots[kMost] = {};  // of du with each x_i
  for (int64_t c = lane; c < args.du.columns; c += kWarp) {
    const float gradient = Load(du + c);
    HADAL_UNROLL for (int i = 0; i < kMost; ++i) {
      if (i < lanes.n) dots[i] = MulAdd(gradient, Load(x + (i * args.du.columns + c)), dots[i]);
    }
  }
  const float rstd = Load(ViewOf(args.rstd) + row);
  float h[3], d[3] = {}, d_rstd = 0.0f;
  Logits(args, row, rstd, lanes, h);
  HADAL_UNROLL for (int s = 0; s < 3; ++s) {
    if (lanes.map[s] >= lanes.n) d[s] = Load(ViewOf(args.d_maps).row(row) + lanes.map[s]);
  }
  HADAL_UNROLL for (int i = 0; i < kMost; ++i) {
    if (i >= lanes.n) continue;
    const float dot = SumOfWarp(dots[i]);
    if (lane == i) d[0] = dot;
  }
  if (lanes.map[0] >= 0) {
    const float map = Load(maps + lanes.map[0]);
    d[0] *= map * (1.0f - (lane < lanes.n ? map : 0.5f * map));
  }
  float square[2] = {d[1], d[2]};
  MixingBackward(args.mixing, lanes, h, square);
  d[1] = square[0], d[2] = square[1];
  HADAL_UNROLL for (int s = 0; s < 3; ++s) {
    if (lanes.logit[s] < 0) continue;
    const float projected = Load(ViewOf(args.projected).row(row) + lanes.logit[s]),
                gate = Load(ViewOf(args.gates) + lanes.gate[s]);
    sums[s] += d[s];
    gates[s > 0] = MulAdd(d[s], rstd * projected, gates[s > 0]);
    d_rstd = MulAdd(gate * projected, d[s], d_rstd);
    Store(ViewOf(args.d_projected).row(row) + lanes.logit[s], gate * rstd * d[s]);
  }
  const float of_norm =
      -SumOfWarp(d_rstd) * rstd * rstd * rstd / (static_cast<float>(lanes.n) * static_cast<float>(args.du.columns));
  for (int64_t c = lane; c < args.du.columns; c += kWarp) {
    const float gradient = Load(du + c);
    HADAL_UNROLL for (int i = 0; i < kMost; ++i) {
      if (i >= lanes.n) continue;
      const DevicePointer<float> dx = ViewOf(args.dx).row(row) + (i * args.du.columns + c);
      const float read = MulAdd(Load(maps + i), gradient, Load(dx));
      Store(dx, MulAdd(of_norm, Load(x + (i * args.du.columns + c)), read));
    }
  }
}

// Block x: rows [x·kHyperRowBlock, …). partials[x·(l + 3) + k]: the gradients of bias and gates from these rows.
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kThreads, 1) HyperReadBackwardKernel(HyperReadBackwardArgs args, int residuals) {
  HADAL_SHARED(float, warps, kWarps*(kMostMaps + kHyperGates));
  const int64_t first = BlockX() * kHyperRowBlock;
  const int64_t end = first + kHyperRowBlock < args.du.rows ? first + kHyperRowBlock : args.du.rows;
  const int warp = ThreadIndex() / kWarp, lane = ThreadIndex() % kWarp;
  const MapLanes lanes = ThisLanes(residuals, args.mixing);
  const int logits = static_cast<int>(args.projected.columns), count = logits + static_cast<int>(kHyperGates);
  float sums[3] = {}, gates[2] = {};
  for (int64_t row = first + warp; row < end; row += kWarps) ReadBackwardRow(args, row, lanes, sums, gates);
  HADAL_UNROLL for (int s = 0; s < 3; ++s) {
    if (lanes.logit[s] >= 0) warps[warp * count + lanes.logit[s]] = sums[s];
    const float gate = SumOfWarp(s < 2 && s != lanes.gate[0] ? 0.0f : gates[s > 1]);
    if (lane == 0) warps[warp * count + logits + s] = gate;
  }
  Barrier();
  const int k = ThreadIndex();
  if (k >= count) return;
  float sum = warps[k];
  for (int w = 1; w < kWarps; ++w) sum += warps[w * count + k];
  Store(ViewOf(args.partials) + (BlockX() * count + k), sum);
}

HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kThreads) CopyToResidualsKernel(CopyToResidualsArgs args, int residuals) {
  const int64_t at = BlockX() * kThreads + ThreadIndex(), row = at / args.x.columns, c = at % args.x.columns;
  if (row >= args.x.rows) return;
  const float value = args.gain * Load(ViewOf(args.x).row(row) + c);
  for (int64_t i = 0; i < residuals; ++i) Store(ViewOf(args.y).row(row) + (i * args.x.columns + c), value);
}

HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kThreads) SumResidualsKernel(SumResidualsArgs args, int residuals) {
  const int64_t at = BlockX() * kThreads + ThreadIndex(), row = at / args.y.columns, c = at % args.y.columns;
  if (row >= args.y.rows) return;
  float sums[kMost];
  LoadResiduals(ViewOf(args.x).row(row), args.y.columns, c, residuals, sums);
  HADAL_UNROLL for (int half = kMost / 2; half > 0; half /= 2) {
    HADAL_UNROLL for (int i = 0; i < half; ++i) sums[i] += sums[i + half];
  }
  Store(ViewOf(args.y).row(row) + c, args.gain * sums[0]);
}

// Launches a kernel whose blocks have `rows_of_block` rows. `all`, `one`: tensors of all residuals and of one.
template <typename Args>
void LaunchOnRows(StreamHandle stream, void (*kernel)(Args, int), const Args& args, const ConstMatrix& all,
                  const ConstMatrix& one, int64_t rows_of_block) {
  const LaunchShape shape = {.blocks_x = (one.rows + rows_of_block - 1) / rows_of_block, .threads = kThreads};
  if (one.rows > 0) Launch(stream, shape, kernel, args, static_cast<int>(all.columns / one.columns));
}
// The same with a thread for each element of `one`.
template <typename Args>
void LaunchOnElements(StreamHandle stream, void (*kernel)(Args, int), const Args& args, const ConstMatrix& all,
                      const ConstMatrix& one) {
  const LaunchShape shape = {.blocks_x = (one.rows * one.columns + kThreads - 1) / kThreads, .threads = kThreads};
  if (one.rows > 0) Launch(stream, shape, kernel, args, static_cast<int>(all.columns / one.columns));
}

}  // namespace

void HyperReadForward(StreamHandle stream, const HyperReadForwardArgs& args) {
  LaunchOnRows(stream, HyperReadForwardKernel, args, args.x, args.u, kWarps);
}

void HyperWriteForward(StreamHandle stream, const HyperWriteForwardArgs& args) {
  LaunchOnElements(stream, HyperWriteForwardKernel, args, args.x, args.f);
}

void HyperWriteBackward(StreamHandle stream, const HyperWriteBackwardArgs& args) {
  LaunchOnRows(stream, HyperWriteBackwardKernel, args, args.x, args.f, kWarps);
}

void HyperReadBackward(StreamHandle stream, const HyperReadBackwardArgs& args) {
  if (args.du.rows == 0) return;
  LaunchOnRows(stream, HyperReadBackwardKernel, args, args.x, args.du, kHyperRowBlock);
  const int64_t logits = args.projected.columns;
  const ColumnMerge bias = {.parts = args.partials.data,
                            .count = (args.du.rows + kHyperRowBlock - 1) / kHyperRowBlock,
                            .stride = logits + kHyperGates,
                            .width = logits,
                            .sums = args.d_bias.data};
  ColumnMerge gates = bias;
  gates.parts += logits, gates.width = kHyperGates, gates.sums = args.d_gates.data;
  const ColumnMerge merges[] = {bias, gates};
  MergeColumns(stream, merges);
}

void CopyToResiduals(StreamHandle stream, const CopyToResidualsArgs& args) {
  LaunchOnElements(stream, CopyToResidualsKernel, args, args.y, args.x);
}

void SumResiduals(StreamHandle stream, const SumResidualsArgs& args) {
  LaunchOnElements(stream, SumResidualsKernel, args, args.x, args.y);
}

}  // namespace hadal::cuda
