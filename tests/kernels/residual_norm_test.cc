#include "kernels/residual_norm.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/each_instruction_set.h"
#include "tests/support/finite_difference.h"
#include "tests/support/random_inputs.h"
#include "tests/support/residual_norm_reference.h"
#include "tests/support/strided_matrix.h"

namespace hadal::testing {
namespace {

constexpr float kResidualGain = 1.75f, kBranchGain = 0.625f, kSkipGain = 0.75f;
constexpr float kUnset = NAN;

// Which optional fields a case gives.
struct Fields {
  bool branch = true, bias = false, skip = false, dropout = false, norm = true, d_sum = false;
  bool learned_residual = false, learned_branch = false;
};
constexpr Fields kFields[] = {
    {},                                              // post-norm, plain
    {.branch = false},                               // the norm alone
    {.branch = false, .d_sum = true},                // the norm alone, where the stream goes on beside it
    {.norm = false, .d_sum = true},                  // no norm
    {.bias = true, .dropout = true},                 // DeepNorm in training
    {.bias = true, .dropout = true, .d_sum = true},  // pre-norm in training
    {.skip = true},                                  // B2T
    {.bias = true, .skip = true, .dropout = true, .norm = false, .d_sum = true},
    {.bias = true, .skip = true, .dropout = true, .d_sum = true},
    {.bias = true, .dropout = true, .norm = false, .d_sum = true, .learned_branch = true},  // ReZero
    {.bias = true, .dropout = true, .learned_residual = true},                              // Admin
    {.skip = true, .dropout = true, .d_sum = true, .learned_residual = true, .learned_branch = true},
};

struct Case {
  Case(int64_t rows, int64_t width, const Fields& f) : rows(rows), width(width), fields(f) {
    const int64_t n = rows * width;
    stream = NormalValues(n, 1), branch = NormalValues(n, 2), skip = NormalValues(n, 3);
    bias = NormalValues(width, 4), scale = NormalValues(width, 5), shift = NormalValues(width, 6);
    d_normed = NormalValues(n, 7), d_sum = NormalValues(n, 8);
    omega = NormalValues(width, 9), gain = {-0.375f};
    dropout = {{.seed = 5, .step = 2, .micro_batch = 1, .sublayer = 31}, f.dropout ? Dropout::Threshold(0.2) : 0};
    reference = {.rows = rows, .width = width, .stream = Widen(stream)};
    if (f.branch)
      reference.branch = Widen(branch), reference.residual_gain = kResidualGain, reference.branch_gain = kBranchGain;
    reference.skip_gain = kSkipGain;
    if (f.learned_residual) reference.learned_residual_gain = Widen(omega);
    if (f.learned_branch) reference.learned_branch_gain = Widen(gain);
    if (f.bias) reference.bias = Widen(bias);
    if (f.skip) reference.skip = Widen(skip);
    if (f.norm) reference.scale = Widen(scale), reference.shift = Widen(shift);
    for (int64_t i = 0; f.dropout && i < n; ++i) reference.factors.push_back(DropoutFactor(dropout, i));
  }
  std::vector<double> ReferenceDNormed() const { return fields.norm ? Widen(d_normed) : std::vector<double>(); }
  std::vector<double> ReferenceDSum() const { return fields.d_sum ? Widen(d_sum) : std::vector<double>(); }
  ConstVector Optional(bool given, const std::vector<float>& v) const {
    return given ? ConstVector(v.data(), v.size()) : ConstVector();
  }

  int64_t rows, width;
  Fields fields;
  Dropout dropout;
  std::vector<float> stream, branch, skip, bias, scale, shift, d_normed, d_sum, omega, gain;
  ResidualNormReference reference;
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.rows << " x " << c.width << ", branch " << c.fields.branch << ", bias " << c.fields.bias << ", skip "
             << c.fields.skip << ", dropout " << c.fields.dropout << ", norm " << c.fields.norm << ", d_sum "
             << c.fields.d_sum << ", learned " << c.fields.learned_residual << c.fields.learned_branch;
}

struct ForwardResult {
  std::vector<float> sum, normed, mean, rstd;
};

ForwardResult Forward(const Case& c, const Stream& threads, bool keep_sum = true) {
  const auto unset = std::vector<float>(c.rows * c.width, kUnset);
  StridedMatrix stream(c.stream, c.rows, c.width), branch(c.branch, c.rows, c.width), skip(c.skip, c.rows, c.width);
  StridedMatrix sum(unset, c.rows, c.width), normed(unset, c.rows, c.width);
  ForwardResult result;
  const Fields& f = c.fields;
  if (f.norm) result.mean.assign(c.rows, kUnset), result.rstd.assign(c.rows, kUnset);
  ResidualNormForwardArgs args = {
      .stream = stream.view(), .residual_gain = kResidualGain, .branch_gain = kBranchGain, .skip_gain = kSkipGain};
  args.dropout = c.dropout;
  args.learned_residual_gain = c.Optional(f.learned_residual, c.omega);
  args.learned_branch_gain = c.Optional(f.learned_branch, c.gain);
  if (f.branch) args.branch = branch.view();
  if (f.skip) args.skip = skip.view();
  args.bias = c.Optional(f.bias, c.bias), args.scale = c.Optional(f.norm, c.scale),
  args.shift = c.Optional(f.norm, c.shift);
  if (keep_sum) args.sum = sum.view();
  if (f.norm) {
    args.normed = normed.view();
    args.mean = {result.mean.data(), c.rows}, args.rstd = {result.rstd.data(), c.rows};
  }
  ResidualNormForward(threads, args);
  EXPECT_TRUE(sum.guards_intact() && normed.guards_intact());
  if (keep_sum) result.sum = sum.dense();
  if (f.norm) result.normed = normed.dense();
  return result;
}

struct BackwardResult {
  std::vector<float> d_stream, d_branch, d_skip, d_bias, d_scale, d_shift, d_omega, d_gain;
};

enum class Alias { kNone, kDNormed, kDSum };

// Sums start from the forward's inputs of the same shape, to show that they are added to.
BackwardResult Backward(const Case& c, const ForwardResult& forward, const Stream& threads,
                        Alias alias = Alias::kNone) {
  const auto unset = std::vector<float>(c.rows * c.width, kUnset);
  StridedMatrix d_normed(c.d_normed, c.rows, c.width), d_sum(c.d_sum, c.rows, c.width),
      sum(forward.sum, c.rows, c.width);
  StridedMatrix d_stream(unset, c.rows, c.width), d_branch(unset, c.rows, c.width), d_skip(c.skip, c.rows, c.width);
  BackwardResult result;
  std::vector<float> partials(ResidualNormPartials(c.rows, c.width), kUnset);
  const Fields& f = c.fields;
  StridedMatrix stream(c.stream, c.rows, c.width), branch(c.branch, c.rows, c.width);
  ResidualNormBackwardArgs args = {
      .residual_gain = kResidualGain, .branch_gain = kBranchGain, .skip_gain = kSkipGain, .dropout = c.dropout};
  StridedMatrix& target = alias == Alias::kDNormed ? d_normed : alias == Alias::kDSum ? d_sum : d_stream;
  args.d_stream = target.view();
  args.partials = {partials.data(), static_cast<int64_t>(partials.size())};
  if (f.norm) {
    args.d_normed = d_normed.view(), args.sum = sum.view();
    args.mean = c.Optional(true, forward.mean), args.rstd = c.Optional(true, forward.rstd);
    args.scale = c.Optional(true, c.scale);
    result.d_scale = c.scale, result.d_shift = c.shift;
    args.d_scale = {result.d_scale.data(), c.width}, args.d_shift = {result.d_shift.data(), c.width};
  }
  if (f.d_sum) args.d_sum = d_sum.view();
  if (f.branch) args.d_branch = d_branch.view();
  if (f.skip) args.d_skip = d_skip.view();
  if (f.bias) result.d_bias = c.bias, args.d_bias = {result.d_bias.data(), c.width};
  if (f.learned_residual) {
    result.d_omega = c.omega, args.d_learned_residual_gain = {result.d_omega.data(), c.width};
    args.learned_residual_gain = c.Optional(true, c.omega), args.stream = stream.view();
  }
  if (f.learned_branch) {
    result.d_gain = c.gain, args.d_learned_branch_gain = {result.d_gain.data(), 1};
    args.learned_branch_gain = c.Optional(true, c.gain), args.branch = branch.view();
    args.bias = c.Optional(f.bias, c.bias);
  }
  ResidualNormBackward(threads, args);
  EXPECT_TRUE(target.guards_intact() && d_branch.guards_intact() && d_skip.guards_intact());
  result.d_stream = target.dense();
  if (f.branch) result.d_branch = d_branch.dense();
  if (f.skip) result.d_skip = d_skip.dense();
  return result;
}

void ExpectSameBits(const ForwardResult& a, const ForwardResult& b) {
  EXPECT_TRUE(SameBits(a.sum, b.sum));
  EXPECT_TRUE(SameBits(a.normed, b.normed));
  EXPECT_TRUE(SameBits(a.mean, b.mean));
  EXPECT_TRUE(SameBits(a.rstd, b.rstd));
}

void ExpectSameBits(const BackwardResult& a, const BackwardResult& b) {
  EXPECT_TRUE(SameBits(a.d_stream, b.d_stream));
  EXPECT_TRUE(SameBits(a.d_branch, b.d_branch));
  EXPECT_TRUE(SameBits(a.d_skip, b.d_skip));
  EXPECT_TRUE(SameBits(a.d_bias, b.d_bias));
  EXPECT_TRUE(SameBits(a.d_scale, b.d_scale));
  EXPECT_TRUE(SameBits(a.d_shift, b.d_shift));
  EXPECT_TRUE(SameBits(a.d_omega, b.d_omega));
  EXPECT_TRUE(SameBits(a.d_gain, b.d_gain));
}

TEST(ResidualNormReferenceTest, GradientsMatchFiniteDifferences) {
  for (const Fields& fields : kFields) {
    Case c(3, 5, fields);
    SCOPED_TRACE(c);
    ResidualNormReference& reference = c.reference;
    const std::vector<double> d_normed = c.ReferenceDNormed(), d_sum = c.ReferenceDSum();
    const auto loss = [&] {
      const ResidualNormReference::Output out = reference.Forward();
      return Dot(d_normed, out.normed) + Dot(d_sum, out.sum);
    };
    const ResidualNormReference::Gradients g = reference.Backward(d_normed, d_sum);
    EXPECT_TRUE(IsGradient(reference.stream, loss, g.d_stream));
    if (fields.branch) {
      EXPECT_TRUE(IsGradient(reference.branch, loss, g.d_branch));
    }
    if (fields.skip) {
      EXPECT_TRUE(IsGradient(reference.skip, loss, g.d_skip));
    }
    if (fields.bias) {
      EXPECT_TRUE(IsGradient(reference.bias, loss, g.d_bias));
    }
    if (fields.learned_residual) {
      EXPECT_TRUE(IsGradient(reference.learned_residual_gain, loss, g.d_residual_gain));
    }
    if (fields.learned_branch) {
      EXPECT_TRUE(IsGradient(reference.learned_branch_gain, loss, g.d_branch_gain));
    }
    if (fields.norm) {
      EXPECT_TRUE(IsGradient(reference.scale, loss, g.d_scale));
      EXPECT_TRUE(IsGradient(reference.shift, loss, g.d_shift));
    }
  }
}

// Runs `check` for every combination of fields over ragged shapes (widths around vector lengths and past the dropout
// window).
template <typename Check>
void ForEachCase(const Check& check) {
  struct Shape {
    int64_t rows, width;
  };
  for (const Shape& s : {Shape{1, 1}, {5, 3}, {33, 16}, {40, 63}, {100, 64}, {64, 65}, {3, 1100}}) {
    for (const Fields& fields : kFields) {
      const Case c(s.rows, s.width, fields);
      SCOPED_TRACE(c);
      check(c);
    }
  }
}

double LargestRstd(const Case& c) {
  if (!c.fields.norm) return 1;
  const std::vector<double> rstd = c.reference.Forward().rstd;
  return std::max(1.0, *std::max_element(rstd.begin(), rstd.end()));
}

TEST(ResidualNormForwardTest, MatchesReference) {
  ForEachInstructionSet([] {
    ForEachCase([](const Case& c) {
      const ResidualNormReference::Output expected = c.reference.Forward();
      const ForwardResult got = Forward(c, Stream::Cpu(1));
      const double rstd = LargestRstd(c);
      EXPECT_TRUE(NearReference(got.sum, expected.sum, 4, 8));
      EXPECT_TRUE(NearReference(got.normed, expected.normed, 4 * rstd, 16));
      EXPECT_TRUE(NearReference(got.mean, expected.mean, 1, 8));
      EXPECT_TRUE(NearReference(got.rstd, expected.rstd, rstd * rstd, 16));
    });
  });
}

TEST(ResidualNormForwardTest, SumMayBeLeftOut) {
  ForEachCase([](const Case& c) {
    if (!c.fields.norm) return;
    ForwardResult with = Forward(c, Stream::Cpu(1));
    with.sum.clear();
    ExpectSameBits(with, Forward(c, Stream::Cpu(1), /*keep_sum=*/false));
  });
}

TEST(ResidualNormForwardTest, SumMayLieOverStreamOrBranch) {
  const Case c(37, 65, {.bias = true, .dropout = true});
  const ForwardResult expected = Forward(c, Stream::Cpu(1));
  for (const bool over_branch : {false, true}) {
    std::vector<float> stream = c.stream, branch = c.branch, normed(c.stream.size()), mean(c.rows), rstd(c.rows);
    std::vector<float>& target = over_branch ? branch : stream;
    ResidualNormForward(Stream::Cpu(2), {.stream = {stream.data(), c.rows, c.width},
                                         .branch = {branch.data(), c.rows, c.width},
                                         .bias = {c.bias.data(), c.width},
                                         .residual_gain = kResidualGain,
                                         .branch_gain = kBranchGain,
                                         .dropout = c.dropout,
                                         .scale = {c.scale.data(), c.width},
                                         .shift = {c.shift.data(), c.width},
                                         .sum = {target.data(), c.rows, c.width},
                                         .normed = {normed.data(), c.rows, c.width},
                                         .mean = {mean.data(), c.rows},
                                         .rstd = {rstd.data(), c.rows}});
    ExpectSameBits(expected, {target, normed, mean, rstd});
  }
}

// What lets a chunk start anywhere: the norm that rode along with a residual add equals the norm run alone on its sum.
TEST(ResidualNormForwardTest, NormAloneOnTheSumHasTheSameBits) {
  for (const int64_t width : {1, 17, 64, 512, 1100}) {
    const Case c(33, width, {.bias = true, .skip = true, .dropout = true});
    const ForwardResult fused = Forward(c, Stream::Cpu(2));
    Case alone(33, width, {.branch = false});
    alone.stream = fused.sum;
    ExpectSameBits(fused, Forward(alone, Stream::Cpu(1)));
  }
}

TEST(ResidualNormBackwardTest, MatchesReference) {
  ForEachInstructionSet([] {
    ForEachCase([](const Case& c) {
      const ForwardResult forward = Forward(c, Stream::Cpu(1));
      ResidualNormReference::Gradients g = c.reference.Backward(c.ReferenceDNormed(), c.ReferenceDSum());
      const auto add = [](std::vector<double>& to, const std::vector<float>& start) {
        for (size_t i = 0; i < to.size(); ++i) to[i] += start[i];
      };
      add(g.d_skip, c.skip), add(g.d_bias, c.bias), add(g.d_scale, c.scale), add(g.d_shift, c.shift);
      add(g.d_residual_gain, c.omega), add(g.d_branch_gain, c.gain);
      const BackwardResult got = Backward(c, forward, Stream::Cpu(1));
      // Rounding of h grows with rstd, and ds multiplies it by rstd again; sums over rows add up √rows of it.
      const double magnitude = 4 * LargestRstd(c) * LargestRstd(c);
      const double over_rows = magnitude * std::sqrt(c.rows);
      EXPECT_TRUE(NearReference(got.d_stream, g.d_stream, magnitude, 16));
      if (c.fields.branch) {
        EXPECT_TRUE(NearReference(got.d_branch, g.d_branch, magnitude, 16));
      }
      if (c.fields.skip) {
        EXPECT_TRUE(NearReference(got.d_skip, g.d_skip, magnitude, 16));
      }
      if (c.fields.bias) {
        EXPECT_TRUE(NearReference(got.d_bias, g.d_bias, over_rows, 16));
      }
      if (c.fields.learned_residual) {
        EXPECT_TRUE(NearReference(got.d_omega, g.d_residual_gain, 4 * over_rows, 16));
      }
      if (c.fields.learned_branch) {
        EXPECT_TRUE(NearReference(got.d_gain, g.d_branch_gain, 4 * over_rows * std::sqrt(c.width), 16));
      }
      EXPECT_TRUE(NearReference(got.d_scale, g.d_scale, over_rows, 16));
      EXPECT_TRUE(NearReference(got.d_shift, g.d_shift, over_rows, 16));
    });
  });
}

TEST(ResidualNormBackwardTest, StreamGradientMayLieOverItsInputs) {
  ForEachCase([](const Case& c) {
    const ForwardResult forward = Forward(c, Stream::Cpu(1));
    const BackwardResult expected = Backward(c, forward, Stream::Cpu(1));
    if (c.fields.norm) ExpectSameBits(expected, Backward(c, forward, Stream::Cpu(1), Alias::kDNormed));
    if (c.fields.d_sum) ExpectSameBits(expected, Backward(c, forward, Stream::Cpu(1), Alias::kDSum));
  });
}

TEST(ResidualNormTest, ThreadsChangeNoBit) {
  ForEachCase([](const Case& c) {
    const ForwardResult forward = Forward(c, Stream::Cpu(1));
    const BackwardResult backward = Backward(c, forward, Stream::Cpu(1));
    for (int threads = 2; threads <= 3; ++threads) {
      ExpectSameBits(forward, Forward(c, Stream::Cpu(threads)));
      ExpectSameBits(backward, Backward(c, forward, Stream::Cpu(threads)));
    }
  });
}

TEST(ResidualNormTest, AlignmentChangesNoBit) {
  const Case c(9, 70, {.bias = true, .dropout = true});
  std::vector<ForwardResult> results;
  for (const int64_t offset : {0, 1, 7}) {
    StridedMatrix stream(c.stream, 9, 70, offset, offset), branch(c.branch, 9, 70, offset, 0);
    StridedMatrix sum(c.stream, 9, 70, 0, offset), normed(c.stream, 9, 70, offset, 2);
    std::vector<float> mean(9), rstd(9);
    ResidualNormForward(Stream::Cpu(1), {.stream = stream.view(),
                                         .branch = branch.view(),
                                         .bias = {c.bias.data(), 70},
                                         .dropout = c.dropout,
                                         .scale = {c.scale.data(), 70},
                                         .shift = {c.shift.data(), 70},
                                         .sum = sum.view(),
                                         .normed = normed.view(),
                                         .mean = {mean.data(), 9},
                                         .rstd = {rstd.data(), 9}});
    results.push_back({sum.dense(), normed.dense(), mean, rstd});
  }
  ExpectSameBits(results[0], results[1]);
  ExpectSameBits(results[0], results[2]);
}

// A row of equal values has no variance: h = 0 and n = shift, exactly.
TEST(ResidualNormTest, ConstantRowsAreShifted) {
  const std::vector<float> x(2 * 16, 3.0f), scale(16, 2.0f), shift = NormalValues(16, 1);
  std::vector<float> normed(2 * 16), mean(2), rstd(2);
  ResidualNormForward(Stream::Cpu(1), {.stream = {x.data(), 2, 16},
                                       .scale = {scale.data(), 16},
                                       .shift = {shift.data(), 16},
                                       .normed = {normed.data(), 2, 16},
                                       .mean = {mean.data(), 2},
                                       .rstd = {rstd.data(), 2}});
  EXPECT_EQ(std::vector<float>(normed.begin(), normed.begin() + 16), shift);
  EXPECT_NEAR(rstd[1], 1 / std::sqrt(1e-5), 1e-3);
}

TEST(ResidualNormDeathTest, NamesMismatchedShapes) {
  std::vector<float> v(12);
  EXPECT_DEATH(ResidualNormForward(Stream::Cpu(1),
                                   {.stream = {v.data(), 3, 4}, .branch = {v.data(), 4, 3}, .sum = {v.data(), 3, 4}}),
               "4 vs. 3");
}

}  // namespace
}  // namespace hadal::testing
