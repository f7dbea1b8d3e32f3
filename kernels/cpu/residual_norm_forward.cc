#include <algorithm>
#include <cmath>

#include "kernels/cpu/operations.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/residual_norm_forward.cc"
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
  for (int64_t first = 0; first < width; first += DropoutWindow::kCapacity) {
    const int64_t last = std::min(width, first + DropoutWindow::kCapacity);
    const float* factors = args.dropout.active() ? window.Get(row * width + first, last - first) - first : nullptr;
    ForColumns(first, last, [&](auto d, int64_t c) HWY_ATTR {
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
  const float rstd = 1.0f / std::sqrt(squares / width + args.form.epsilon);
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

}  // namespace HWY_NAMESPACE
}  // namespace hadal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace hadal {
namespace {
HWY_EXPORT(ResidualNormForwardRows);
}  // namespace

void cpu::ResidualNormForward(const Stream& stream, const ResidualNormForwardArgs& args) {
  ForRanges(stream, args.residual.rows, kResidualNormRowBlock, HWY_DYNAMIC_DISPATCH(ResidualNormForwardRows), args);
}

}  // namespace hadal

#endif  // HWY_ONCE
