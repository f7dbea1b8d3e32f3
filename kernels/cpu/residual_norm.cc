#include <algorithm>
#include <iterator>

#include "kernels/cpu/operations.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/residual_norm.cc"
#include "hwy/foreach_target.h"
// Must be included after foreach_target.h.
#include "kernels/cpu/columns-inl.h"
#include "kernels/cpu/dropout-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hadal {
namespace HWY_NAMESPACE {

// s of one row: fma(b·g, f·(y + bias), fma(a, e, r·x·ω)), f the dropout factor. With a second stream also d':
// fma(c, b·g·f·(y + bias), d).
HWY_INLINE void ResidualRow(const ResidualNormForwardArgs& args, int64_t row, DropoutWindow& window, float* s) {
  const int64_t width = args.residual.columns;
  const float* x = args.residual.floats().row(row);
  const float* y = args.branch.floats().row(row);
  const float* bias = args.bias.data;
  const float* skip = args.skip.empty() ? nullptr : args.skip.floats().row(row);
  const float* omega = args.learned_residual_gain.data;
  float* second_sum = args.second_sum.empty() ? nullptr : args.second_sum.row(row);
  const float* second = args.second.empty() ? nullptr : args.second.row(row);
  const float residual_gain = args.residual_gain, skip_gain = args.skip_gain, second_gain = args.second_gain;
  const float branch_gain = args.branch_gain * (args.learned_branch_gain.empty() ? 1.0f : args.learned_branch_gain[0]);
  window.ForRow(row * width, 0, width, [&](auto d, int64_t c, const float* factors) HWY_ATTR {
    auto branch = hn::LoadU(d, y + c);
    if (bias != nullptr) branch = hn::Add(branch, hn::LoadU(d, bias + c));
    if (factors != nullptr) branch = hn::Mul(branch, hn::LoadU(d, factors + c));
    const auto residual = hn::LoadU(d, x + c);
    if (second_sum != nullptr) {
      const auto gain = hn::Set(d, second_gain);
      const auto before = second == nullptr ? hn::Mul(gain, residual) : hn::LoadU(d, second + c);
      const auto added = hn::Mul(hn::Set(d, branch_gain), branch);
      hn::StoreU(hn::MulAdd(gain, added, before), d, second_sum + c);
    }
    auto rest = hn::Mul(hn::Set(d, residual_gain), residual);
    if (omega != nullptr) rest = hn::Mul(rest, hn::LoadU(d, omega + c));
    if (skip != nullptr) rest = hn::MulAdd(hn::Set(d, skip_gain), hn::LoadU(d, skip + c), rest);
    hn::StoreU(hn::MulAdd(hn::Set(d, branch_gain), branch, rest), d, s + c);
  });
}

// The norm of one row: n = k·((s − mean)·rstd·scale + shift); RMSNorm: mean = 0. `n` may be `s`.
HWY_INLINE void NormRow(const ResidualNormForwardArgs& args, int64_t row, const float* s, float* n) {
  const int64_t width = args.residual.columns;
  float mean = 0;
  if (args.form.centred) {
    mean = SumColumns(width, [&](auto d, int64_t c) HWY_ATTR { return hn::LoadU(d, s + c); }) / width;
  }
  const float squares = SumColumns(width, [&](auto d, int64_t c) HWY_ATTR {
    const auto centred = hn::Sub(hn::LoadU(d, s + c), hn::Set(d, mean));
    return hn::Mul(centred, centred);
  });
  const float rstd = InverseRoot(squares / width + args.form.epsilon);
  const float *scale = args.scale.data, *shift = args.shift.data;
  const float norm_gain = args.norm_gain;
  ForColumns(0, width, [&](auto d, int64_t c) HWY_ATTR {
    const auto centred = hn::Sub(hn::LoadU(d, s + c), hn::Set(d, mean));
    const auto normalised = hn::Mul(centred, hn::Set(d, rstd));
    const auto added = shift == nullptr ? hn::Zero(d) : hn::LoadU(d, shift + c);
    const auto affine = hn::MulAdd(normalised, hn::LoadU(d, scale + c), added);
    hn::StoreU(hn::Mul(hn::Set(d, norm_gain), affine), d, n + c);
  });
  args.mean[row] = mean;
  args.rstd[row] = rstd;
}

void ResidualNormForwardRows(const ResidualNormForwardArgs& args, int64_t begin, int64_t end) {
  const int64_t width = args.residual.columns;
  DropoutWindow window(args.dropout, end * width);
  for (int64_t row = begin; row < end; ++row) {
    const float* s = args.residual.floats().row(row);
    if (!args.branch.empty()) {
      // Without `sum`, n's row holds s until it is normalised in place.
      float* to = args.sum.empty() ? args.normed.floats().row(row) : args.sum.floats().row(row);
      ResidualRow(args, row, window, to);
      s = to;
    } else if (!args.sum.empty() && args.sum.floats().row(row) != s) {
      std::copy(s, s + width, args.sum.floats().row(row));
    }
    if (!args.normed.empty()) NormRow(args, row, s, args.normed.floats().row(row));
  }
}

// One block's contributions to each column sum: the block's [kResidualNormSums, W] in
// ResidualNormBackwardArgs::partials, in the order of the fields. Null if that sum is not computed.
struct BlockSums {
  BlockSums(const ResidualNormBackwardArgs& args, int64_t block)
      : width(args.d_residual.columns), base(args.partials.data + block * kResidualNormSums * width) {
    bias = Zeroed(0, !args.d_bias.empty());
    scale = Zeroed(1, !args.d_normed.empty());
    shift = Zeroed(2, !args.d_normed.empty());
    residual_gain = Zeroed(3, !args.d_learned_residual_gain.empty());
    branch_gain = Zeroed(4, !args.d_learned_branch_gain.empty());
  }
  float* Zeroed(int64_t index, bool wanted) const {
    return wanted ? std::fill_n(base + index * width, width, 0.0f) - width : nullptr;
  }

  int64_t width;
  float* base;
  float *bias, *scale, *shift, *residual_gain, *branch_gain;
};

// The two means of a row that the norm's gradient subtracts (residual_norm.md):
//   of_gradient = mean(dh), 0 for RMSNorm; of_product = mean(dh ⊙ h) with dh = k·dn ⊙ scale, h = (s − mean)·rstd.
struct RowMeans {
  float of_gradient = 0, of_product = 0;
};

// Also adds the row to the block's d_scale and d_shift.
HWY_INLINE RowMeans NormSums(const ResidualNormBackwardArgs& args, int64_t row, const BlockSums& sums) {
  const int64_t width = args.d_residual.columns;
  const float *dn = args.d_normed.floats().row(row), *s = args.sum.floats().row(row), *scale = args.scale.data;
  const float mean = args.mean[row], rstd = args.rstd[row], norm_gain = args.norm_gain;
  float *d_scale = sums.scale, *d_shift = sums.shift;
  float sums_of[2];
  SumColumnTerms<2, 2>(width, sums_of, [&](auto d, int64_t c, auto& terms) HWY_ATTR {
    const auto gradient = hn::Mul(hn::Set(d, norm_gain), hn::LoadU(d, dn + c));
    const auto normalised = hn::Mul(hn::Sub(hn::LoadU(d, s + c), hn::Set(d, mean)), hn::Set(d, rstd));
    terms[0] = hn::Mul(gradient, hn::LoadU(d, scale + c));
    terms[1] = hn::Mul(terms[0], normalised);
    hn::StoreU(hn::MulAdd(gradient, normalised, hn::LoadU(d, d_scale + c)), d, d_scale + c);
    hn::StoreU(hn::Add(gradient, hn::LoadU(d, d_shift + c)), d, d_shift + c);
  });
  return {.of_gradient = args.form.centred ? sums_of[0] / width : 0, .of_product = sums_of[1] / width};
}

// Computes ds of one row, and from it d_residual, d_branch, d_skip and the block's sums. Reads each column before it
// writes it, so that d_residual may alias d_normed or d_sum.
HWY_INLINE void GradientRow(const ResidualNormBackwardArgs& args, int64_t row, const RowMeans means,
                            DropoutWindow& window, const BlockSums& sums) {
  const int64_t width = args.d_residual.columns;
  const bool norm = !args.d_normed.empty();
  const float* dn = norm ? args.d_normed.floats().row(row) : nullptr;
  const float* s = norm ? args.sum.floats().row(row) : nullptr;
  const float* scale = args.scale.data;
  const float mean = norm ? args.mean[row] : 0.0f, rstd = norm ? args.rstd[row] : 0.0f, norm_gain = args.norm_gain;
  const float* d_sum = args.d_sum.empty() ? nullptr : args.d_sum.floats().row(row);
  float* d_residual = args.d_residual.floats().row(row);
  float* d_branch = args.d_branch.empty() ? nullptr : args.d_branch.floats().row(row);
  float* d_skip = args.d_skip.empty() ? nullptr : args.d_skip.row(row);
  const float residual_gain = d_branch != nullptr ? args.residual_gain : 1.0f;  // the norm alone: s = x
  const float branch_gain = args.branch_gain, skip_gain = args.skip_gain, second_gain = args.second_gain;
  const float* d_second = args.d_second.empty() ? nullptr : args.d_second.row(row);
  const float* omega = args.learned_residual_gain.data;
  const float* x = omega != nullptr ? args.residual.floats().row(row) : nullptr;
  const bool learned = !args.learned_branch_gain.empty();
  const float learned_gain = learned ? args.learned_branch_gain[0] : 1.0f;
  const float* y = learned ? args.branch.floats().row(row) : nullptr;
  const float* bias = args.bias.data;
  float* d_bias = sums.bias;
  window.ForRow(row * width, 0, width, [&](auto d, int64_t c, const float* factors) HWY_ATTR {
    auto ds = hn::Zero(d);
    if (norm) {
      const auto normalised = hn::Mul(hn::Sub(hn::LoadU(d, s + c), hn::Set(d, mean)), hn::Set(d, rstd));
      const auto dh = hn::Mul(hn::Mul(hn::Set(d, norm_gain), hn::LoadU(d, dn + c)), hn::LoadU(d, scale + c));
      const auto centred = hn::Sub(dh, hn::Set(d, means.of_gradient));
      ds = hn::Mul(hn::NegMulAdd(normalised, hn::Set(d, means.of_product), centred), hn::Set(d, rstd));
    }
    if (d_sum != nullptr) ds = hn::Add(ds, hn::LoadU(d, d_sum + c));
    if (d_skip != nullptr) {
      hn::StoreU(hn::MulAdd(hn::Set(d, skip_gain), ds, hn::LoadU(d, d_skip + c)), d, d_skip + c);
    }
    auto dx = hn::Mul(hn::Set(d, residual_gain), ds);
    if (omega != nullptr) {
      float* d_omega = sums.residual_gain + c;
      hn::StoreU(hn::MulAdd(dx, hn::LoadU(d, x + c), hn::LoadU(d, d_omega)), d, d_omega);
      dx = hn::Mul(dx, hn::LoadU(d, omega + c));
    }
    if (args.second_starts) dx = hn::MulAdd(hn::Set(d, second_gain), hn::LoadU(d, d_second + c), dx);
    hn::StoreU(dx, d, d_residual + c);
    if (d_branch == nullptr) return;
    if (d_second != nullptr) ds = hn::MulAdd(hn::Set(d, second_gain), hn::LoadU(d, d_second + c), ds);
    auto db = hn::Mul(hn::Set(d, branch_gain), ds);
    if (factors != nullptr) db = hn::Mul(db, hn::LoadU(d, factors + c));
    if (learned) {
      float* d_gain = sums.branch_gain + c;
      auto output = hn::LoadU(d, y + c);
      if (bias != nullptr) output = hn::Add(output, hn::LoadU(d, bias + c));
      hn::StoreU(hn::MulAdd(db, output, hn::LoadU(d, d_gain)), d, d_gain);
      db = hn::Mul(db, hn::Set(d, learned_gain));
    }
    hn::StoreU(db, d, d_branch + c);
    if (d_bias != nullptr) hn::StoreU(hn::Add(hn::LoadU(d, d_bias + c), db), d, d_bias + c);
  });
}

void ResidualNormBackwardBlocks(const ResidualNormBackwardArgs& args, int64_t begin_block, int64_t end_block) {
  const int64_t rows = args.d_residual.rows, width = args.d_residual.columns;
  DropoutWindow window(args.dropout, std::min(rows, end_block * kResidualNormRowBlock) * width);
  for (int64_t block = begin_block; block < end_block; ++block) {
    const BlockSums sums(args, block);
    const int64_t end = std::min(rows, (block + 1) * kResidualNormRowBlock);
    for (int64_t row = block * kResidualNormRowBlock; row < end; ++row) {
      const RowMeans means = args.d_normed.empty() ? RowMeans() : NormSums(args, row, sums);
      GradientRow(args, row, means, window, sums);
    }
  }
}

// sum[c] += Σ_blocks partials[block · kResidualNormSums·W + c] for columns [begin, end), blocks in ascending order.
void MergeBlocks(const float* partials, int64_t blocks, int64_t width, float* sum, int64_t begin, int64_t end) {
  ForColumns(begin, end, [&](auto d, int64_t c) HWY_ATTR {
    auto total = hn::LoadU(d, sum + c);
    for (int64_t block = 0; block < blocks; ++block) {
      total = hn::Add(total, hn::LoadU(d, partials + block * kResidualNormSums * width + c));
    }
    hn::StoreU(total, d, sum + c);
  });
}

// Returns the sum over blocks and columns of one kind of sum.
float SumBlocks(const float* partials, int64_t blocks, int64_t width) {
  return SumColumns(width, [&](auto d, int64_t c) HWY_ATTR {
    auto total = hn::LoadU(d, partials + c);
    for (int64_t block = 1; block < blocks; ++block) {
      total = hn::Add(total, hn::LoadU(d, partials + block * kResidualNormSums * width + c));
    }
    return total;
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace hadal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace hadal {

HWY_EXPORT(ResidualNormBackwardBlocks);
HWY_EXPORT(MergeBlocks);
HWY_EXPORT(SumBlocks);
HADAL_RANGE_OPERATION(ResidualNormForward, ResidualNormForwardRows, args.residual.rows, kResidualNormRowBlock);

void cpu::ResidualNormBackward(const Stream& stream, const ResidualNormBackwardArgs& args) {
  const int64_t width = args.d_residual.columns;
  const int64_t blocks = (args.d_residual.rows + kResidualNormRowBlock - 1) / kResidualNormRowBlock;
  ForRanges(stream, blocks, 1, HWY_DYNAMIC_DISPATCH(ResidualNormBackwardBlocks), args);
  // In the order of BlockSums' fields.
  const Vector column_sums[] = {args.d_bias, args.d_scale, args.d_shift, args.d_learned_residual_gain};
  if (std::any_of(std::begin(column_sums), std::end(column_sums), [](const Vector& sum) { return !sum.empty(); })) {
    stream.ForRanges(width, /*grain=*/64, [&](int64_t begin, int64_t end) {
      const float* partials = args.partials.data;
      for (const Vector& sum : column_sums) {
        if (!sum.empty()) HWY_DYNAMIC_DISPATCH(MergeBlocks)(partials, blocks, width, sum.data, begin, end);
        partials += width;
      }
    });
  }
  if (args.d_learned_branch_gain.empty()) return;
  args.d_learned_branch_gain[0] += HWY_DYNAMIC_DISPATCH(SumBlocks)(args.partials.data + 4 * width, blocks, width);
}

}  // namespace hadal

#endif  // HWY_ONCE
