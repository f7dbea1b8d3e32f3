// Runs a case of the residual connection in a backend's Lab, which has memory and the kernels:
//
//   Residual, Product, Float   a matrix [rows, width] of values as the backend stores them
//   Vector, Numbers            a vector, and its type
//   Complete                   sets the arguments that backends take differently
//   Partials, Forward, Backward
#pragma once

#include <cmath>

#include "gtest/gtest.h"
#include "kernels/residual_norm.h"
#include "tests/kernels/residual_norm_conformance.h"

namespace hadal::testing {

// The vectors that forward and backward read.
template <typename Lab>
struct ResidualNormVectors {
  ResidualNormVectors(Lab& lab, const ResidualNormCase& c)
      : bias(lab.Vector(c.bias)),
        scale(lab.Vector(c.scale)),
        shift(lab.Vector(c.shift)),
        learned_residual(lab.Vector(c.learned_residual)),
        learned_branch(lab.Vector(c.learned_branch)) {}

  template <typename Args>
  Args ArgsOf(Lab& lab, const ResidualNormCase& c) {
    Args args;
    args.residual_gain = c.kResidualGain, args.second_gain = c.kSecondGain, args.dropout = c.dropout;
    if (c.fields.skip) args.skip_gain = c.kSkipGain;
    if (c.fields.learned_residual) args.learned_residual_gain = learned_residual.view();
    if (c.fields.learned_branch) args.learned_branch_gain = learned_branch.view();
    if (c.fields.norm) args.scale = scale.view(), args.form = c.form();
    if (c.fields.norm_gain) args.norm_gain = c.kNormGain;
    lab.Complete(args);
    return args;
  }

  typename Lab::Numbers bias, scale, shift, learned_residual, learned_branch;
};

template <typename Lab>
ResidualNormForwardResult RunResidualNormForward(Lab&& lab, const ResidualNormCase& c, SumPlace place) {
  const ResidualNormFields& f = c.fields;
  const std::vector<float> unset(c.rows * c.width, NAN), of_rows(c.rows, NAN);
  ResidualNormVectors<std::decay_t<Lab>> vectors(lab, c);
  auto residual = lab.Residual(c.residual), skip = lab.Residual(c.skip), own = lab.Residual(unset);
  auto branch = lab.Product(c.branch), normed = lab.Product(unset);
  auto second = lab.Float(c.second), other = lab.Float(unset);
  auto& second_sum = place == SumPlace::kOwn ? other : second;
  auto mean = lab.Vector(of_rows), rstd = lab.Vector(of_rows);
  const auto with_sum = [&](const auto& use) {
    if (place == SumPlace::kOverBranch) return use(branch);
    if (place != SumPlace::kLeftOut) use(place == SumPlace::kOverResidual ? residual : own);
  };
  auto args = vectors.template ArgsOf<ResidualNormForwardArgs>(lab, c);
  args.residual = residual.view();
  if (f.branch) args.branch = branch.view();
  if (f.skip) args.skip = skip.view();
  if (f.bias) args.bias = vectors.bias.view();
  if (f.second) args.second = second.view();
  if (f.second || f.second_starts) args.second_sum = second_sum.view();
  with_sum([&](auto& sum) { args.sum = sum.view(); });
  if (f.norm) {
    if (f.shift) args.shift = vectors.shift.view();
    args.normed = normed.view();
    args.mean = mean.view(), args.rstd = rstd.view();
  }
  lab.Forward(args);
  ResidualNormForwardResult result;
  with_sum([&](auto& sum) {
    result.sum = sum.dense();
    EXPECT_TRUE(sum.guards_intact());
  });
  if (f.norm) result.normed = normed.dense(), result.mean = mean.Read(), result.rstd = rstd.Read();
  if (f.second || f.second_starts) result.second = second_sum.dense();
  EXPECT_TRUE(normed.guards_intact() && second_sum.guards_intact());
  return result;
}

template <typename Lab>
ResidualNormBackwardResult RunResidualNormBackward(Lab&& lab, const ResidualNormCase& c,
                                                   const ResidualNormForwardResult& forward,
                                                   ResidualGradientPlace place) {
  const ResidualNormFields& f = c.fields;
  const std::vector<float> unset(c.rows * c.width, NAN);
  ResidualNormVectors<std::decay_t<Lab>> vectors(lab, c), sums(lab, c);  // sums start from the parameters
  auto residual = lab.Residual(c.residual), sum = lab.Residual(forward.sum), d_sum = lab.Residual(c.d_sum);
  auto own = lab.Residual(unset);
  auto branch = lab.Product(c.branch), d_normed = lab.Product(c.d_normed), d_branch = lab.Product(unset);
  auto d_skip = lab.Float(c.skip), d_second = lab.Float(c.d_second);
  auto mean = lab.Vector(forward.mean), rstd = lab.Vector(forward.rstd);
  auto partials = lab.Vector(std::vector<float>(lab.Partials(), NAN));
  const auto with_d_residual = [&](const auto& use) {
    if (place == ResidualGradientPlace::kOverDNormed) return use(d_normed);
    use(place == ResidualGradientPlace::kOverDSum ? d_sum : own);
  };
  auto args = vectors.template ArgsOf<ResidualNormBackwardArgs>(lab, c);
  args.partials = partials.view();
  with_d_residual([&](auto& d_residual) { args.d_residual = d_residual.view(); });
  if (f.norm) {
    args.d_normed = d_normed.view(), args.sum = sum.view(), args.mean = mean.view(), args.rstd = rstd.view();
    args.d_scale = sums.scale.view();
    if (f.shift) args.d_shift = sums.shift.view();
  }
  if (f.d_sum) args.d_sum = d_sum.view();
  if (f.branch) args.d_branch = d_branch.view();
  if (f.skip) args.d_skip = d_skip.view();
  if (f.bias) args.d_bias = sums.bias.view();
  if (f.learned_residual) {
    args.residual = residual.view(), args.d_learned_residual_gain = sums.learned_residual.view();
  }
  if (f.learned_branch) {
    args.branch = branch.view(), args.d_learned_branch_gain = sums.learned_branch.view();
    if (f.bias) args.bias = vectors.bias.view();
  }
  if (f.second || f.second_starts) args.d_second = d_second.view(), args.second_starts = f.second_starts;
  lab.Backward(args);
  ResidualNormBackwardResult result;
  with_d_residual([&](auto& d_residual) {
    result.d_residual = d_residual.dense();
    EXPECT_TRUE(d_residual.guards_intact());
  });
  if (f.branch) result.d_branch = d_branch.dense();
  if (f.skip) result.d_skip = d_skip.dense();
  if (f.bias) result.d_bias = sums.bias.Read();
  if (f.norm) result.d_scale = sums.scale.Read();
  if (f.norm && f.shift) result.d_shift = sums.shift.Read();
  if (f.learned_residual) result.d_learned_residual = sums.learned_residual.Read();
  if (f.learned_branch) result.d_learned_branch = sums.learned_branch.Read();
  EXPECT_TRUE(d_branch.guards_intact() && d_skip.guards_intact());
  return result;
}

}  // namespace hadal::testing
