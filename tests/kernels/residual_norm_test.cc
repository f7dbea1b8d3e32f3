#include "kernels/residual_norm.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "tests/kernels/residual_norm_conformance.h"
#include "tests/support/each_instruction_set.h"
#include "tests/support/finite_difference.h"
#include "tests/support/strided_matrix.h"

namespace hadal::testing {
namespace {

using Case = ResidualNormCase;
using ForwardResult = ResidualNormForwardResult;
using BackwardResult = ResidualNormBackwardResult;

// Where matrices lie: `offset` floats behind the start of their storage, rows `padding` floats further apart than they
// are wide.
struct Place {
  int64_t offset, padding;
};
struct Variation {
  int threads;
  Place inputs, outputs;
};
constexpr Variation kVariations[] = {{1, {1, 3}, {1, 3}}, {1, {0, 0}, {0, 0}}, {1, {7, 7}, {0, 7}}, {1, {1, 0}, {7, 2}},
                                     {2, {1, 3}, {1, 3}}, {3, {1, 3}, {1, 3}}, {3, {0, 0}, {7, 1}}};

StridedMatrix Strided(const Case& c, const std::vector<float>& values, const Place& place) {
  return {values, c.rows, c.width, place.offset, place.padding};
}
ConstVector Given(bool given, const std::vector<float>& values) {
  return given ? ConstVector(values.data(), std::ssize(values)) : ConstVector();
}
Vector Whole(std::vector<float>& values) { return {values.data(), std::ssize(values)}; }

// What forward and backward take alike.
template <typename Args>
Args ArgsOf(const Case& c) {
  Args args;
  args.residual_gain = Case::kResidualGain, args.branch_gain = Case::kBranchGain, args.skip_gain = Case::kSkipGain;
  args.learned_residual_gain = Given(c.fields.learned_residual, c.learned_residual);
  args.learned_branch_gain = Given(c.fields.learned_branch, c.learned_branch);
  args.scale = Given(c.fields.norm, c.scale);
  if (c.fields.norm_gain) args.norm_gain = Case::kNormGain;
  args.dropout = c.dropout, args.second_gain = Case::kSecondGain;
  return args;
}

ForwardResult Forward(const Case& c, const Variation& variation, SumPlace place) {
  const ResidualNormFields& f = c.fields;
  const std::vector<float> unset(c.rows * c.width, NAN);
  StridedMatrix residual = Strided(c, c.residual, variation.inputs), branch = Strided(c, c.branch, variation.inputs);
  StridedMatrix skip = Strided(c, c.skip, variation.inputs), normed = Strided(c, unset, variation.outputs);
  StridedMatrix own = Strided(c, unset, variation.outputs);
  StridedMatrix& sum = place == SumPlace::kOverResidual ? residual : place == SumPlace::kOverBranch ? branch : own;
  StridedMatrix second = Strided(c, c.second, variation.inputs), other = Strided(c, unset, variation.outputs);
  StridedMatrix& second_sum = place == SumPlace::kOwn ? other : second;
  ForwardResult result;
  auto args = ArgsOf<ResidualNormForwardArgs>(c);
  if (f.second) args.second = second.view();
  if (f.second || f.second_starts) args.second_sum = second_sum.view();
  args.residual = residual.view();
  if (f.branch) args.branch = branch.view();
  if (f.skip) args.skip = skip.view();
  args.bias = Given(f.bias, c.bias), args.shift = Given(f.norm, c.shift);
  if (place != SumPlace::kLeftOut) args.sum = sum.view();
  if (f.norm) {
    result.mean.assign(c.rows, NAN), result.rstd.assign(c.rows, NAN);
    args.normed = normed.view(), args.mean = Whole(result.mean), args.rstd = Whole(result.rstd);
  }
  ResidualNormForward(Stream::Cpu(variation.threads), args);
  EXPECT_TRUE(sum.guards_intact() && normed.guards_intact() && second_sum.guards_intact());
  if (f.second || f.second_starts) result.second = second_sum.dense();
  if (place != SumPlace::kLeftOut) result.sum = sum.dense();
  if (f.norm) result.normed = normed.dense();
  return result;
}

// The sums that a backward adds to, as they start.
BackwardResult Started(const Case& c) {
  BackwardResult result;
  if (c.fields.bias) result.d_bias = c.bias;
  if (c.fields.norm) result.d_scale = c.scale, result.d_shift = c.shift;
  if (c.fields.learned_residual) result.d_learned_residual = c.learned_residual;
  if (c.fields.learned_branch) result.d_learned_branch = c.learned_branch;
  return result;
}

// What only some cases give of vectors.
void GiveVectors(const Case& c, const ForwardResult& forward, BackwardResult& result, ResidualNormBackwardArgs& args) {
  const ResidualNormFields& f = c.fields;
  if (f.norm) {
    args.mean = Given(true, forward.mean), args.rstd = Given(true, forward.rstd);
    args.d_scale = Whole(result.d_scale), args.d_shift = Whole(result.d_shift);
  }
  if (f.bias) args.d_bias = Whole(result.d_bias);
  if (f.learned_residual) args.d_learned_residual_gain = Whole(result.d_learned_residual);
  if (f.learned_branch) {
    args.d_learned_branch_gain = Whole(result.d_learned_branch);
    args.bias = Given(f.bias, c.bias);
  }
}

BackwardResult Backward(const Case& c, const ForwardResult& forward, const Variation& variation,
                        ResidualGradientPlace place) {
  const ResidualNormFields& f = c.fields;
  const std::vector<float> unset(c.rows * c.width, NAN);
  StridedMatrix d_normed = Strided(c, c.d_normed, variation.inputs), d_sum = Strided(c, c.d_sum, variation.inputs);
  StridedMatrix sum = Strided(c, forward.sum, variation.inputs);
  StridedMatrix residual = Strided(c, c.residual, variation.inputs), branch = Strided(c, c.branch, variation.inputs);
  StridedMatrix own = Strided(c, unset, variation.outputs), d_branch = Strided(c, unset, variation.outputs);
  StridedMatrix d_skip = Strided(c, c.skip, variation.outputs), d_second = Strided(c, c.d_second, variation.inputs);
  StridedMatrix& d_residual = place == ResidualGradientPlace::kOverDNormed ? d_normed
                              : place == ResidualGradientPlace::kOverDSum  ? d_sum
                                                                           : own;
  std::vector<float> partials(ResidualNormPartials(c.rows, c.width), NAN);
  BackwardResult result = Started(c);
  auto args = ArgsOf<ResidualNormBackwardArgs>(c);
  GiveVectors(c, forward, result, args);
  args.d_residual = d_residual.view(), args.partials = Whole(partials);
  if (f.norm) args.d_normed = d_normed.view(), args.sum = sum.view();
  if (f.d_sum) args.d_sum = d_sum.view();
  if (f.branch) args.d_branch = d_branch.view();
  if (f.skip) args.d_skip = d_skip.view();
  if (f.learned_residual) args.residual = residual.view();
  if (f.learned_branch) args.branch = branch.view();
  if (f.second || f.second_starts) args.d_second = d_second.view(), args.second_starts = f.second_starts;
  ResidualNormBackward(Stream::Cpu(variation.threads), args);
  EXPECT_TRUE(d_residual.guards_intact() && d_branch.guards_intact() && d_skip.guards_intact());
  result.d_residual = d_residual.dense();
  if (f.branch) result.d_branch = d_branch.dense();
  if (f.skip) result.d_skip = d_skip.dense();
  return result;
}

float AsItIs(float x) { return x; }

// One for each instruction set.
std::vector<ResidualNormBackend> Backends() {
  std::vector<ResidualNormBackend> backends;
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    const auto forward = [target](const Case& c, int variation, SumPlace place) {
      const OnInstructionSet only(target);
      return Forward(c, kVariations[variation], place);
    };
    const auto backward = [target](const Case& c, const ForwardResult& result, int variation,
                                   ResidualGradientPlace place) {
      const OnInstructionSet only(target);
      return Backward(c, result, kVariations[variation], place);
    };
    backends.push_back({.name = hwy::TargetName(target),
                        .run_forward = forward,
                        .run_backward = backward,
                        .variations = std::size(kVariations),
                        .stored_residual = AsItIs,
                        .stored_product = AsItIs});
  }
  return backends;
}
INSTANTIATE_TEST_SUITE_P(Cpu, ResidualNormConformance, ::testing::ValuesIn(Backends()), ResidualNormBackendName);

TEST(ResidualNormReferenceTest, GradientsMatchFiniteDifferences) {
  for (const ResidualNormFields& fields : ResidualNormCombinations()) {
    const Case c = MakeResidualNormCase(Backends().front(), 3, 5, fields);
    SCOPED_TRACE(c);
    ResidualNormReference reference = ReferenceOf(c);
    const std::vector<double> d_normed = ReferenceDNormed(c), d_sum = ReferenceDSum(c), d_second = ReferenceDSecond(c);
    const auto loss = [&] {
      const ResidualNormReference::Output out = reference.Forward();
      return Dot(d_normed, out.normed) + Dot(d_sum, out.sum) + Dot(d_second, out.second);
    };
    const auto check = [&](bool given, std::vector<double>& variable, const std::vector<double>& gradient) {
      if (given) {
        EXPECT_TRUE(IsGradient(variable, loss, gradient));
      }
    };
    const ResidualNormReference::Gradients g = reference.Backward(d_normed, d_sum, d_second);
    check(true, reference.residual, g.d_residual);
    check(fields.branch, reference.branch, g.d_branch);
    check(fields.skip, reference.skip, g.d_skip);
    check(fields.bias, reference.bias, g.d_bias);
    check(fields.learned_residual, reference.learned_residual_gain, g.d_residual_gain);
    check(fields.learned_branch, reference.learned_branch_gain, g.d_branch_gain);
    check(fields.norm, reference.scale, g.d_scale);
    check(fields.norm, reference.shift, g.d_shift);
  }
}

TEST(ResidualNormDeathTest, NamesMismatchedShapes) {
  std::vector<float> v(12);
  EXPECT_DEATH(ResidualNormForward(Stream::Cpu(1),
                                   {.residual = {v.data(), 3, 4}, .branch = {v.data(), 4, 3}, .sum = {v.data(), 3, 4}}),
               "4 vs. 3");
}

}  // namespace
}  // namespace hadal::testing
