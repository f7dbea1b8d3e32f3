#include "kernels/residual_norm.h"

#include "gtest/gtest.h"
#include "runtime/stream.h"
#include "tests/kernels/residual_norm_conformance.h"
#include "tests/kernels/residual_norm_run.h"
#include "tests/support/each_instruction_set.h"
#include "tests/support/finite_difference.h"
#include "tests/support/strided_matrix.h"

namespace hadal::testing {
namespace {

using Case = ResidualNormCase;

struct Variation {
  int threads;
  Placement places[2];  // of every second matrix
};
constexpr Variation kVariations[] = {{1, {{1, 3}, {1, 3}}}, {1, {{0, 0}, {0, 0}}}, {1, {{7, 7}, {0, 7}}},
                                     {1, {{1, 0}, {7, 2}}}, {2, {{1, 3}, {1, 3}}}, {3, {{1, 3}, {1, 3}}},
                                     {3, {{0, 0}, {7, 1}}}};

class Lab {
 public:
  using Numbers = HostVector;

  Lab(const Case& c, const Variation& variation) : rows_(c.rows), width_(c.width), variation_(variation) {}

  StridedMatrix Float(const std::vector<float>& values) {
    const Placement& place = variation_.places[matrices_++ % 2];
    return {values, rows_, width_, place.offset, place.padding};
  }
  StridedMatrix Residual(const std::vector<float>& values) { return Float(values); }
  StridedMatrix Product(const std::vector<float>& values) { return Float(values); }
  HostVector Vector(const std::vector<float>& values) const { return {values}; }
  template <typename Args>
  void Complete(Args& args) const {
    args.branch_gain = Case::kBranchGain;
  }
  int64_t Partials() const { return ResidualNormPartials(rows_, width_); }
  void Forward(const ResidualNormForwardArgs& args) const {
    ResidualNormForward(Stream::Cpu(variation_.threads), args);
  }
  void Backward(const ResidualNormBackwardArgs& args) const {
    ResidualNormBackward(Stream::Cpu(variation_.threads), args);
  }

 private:
  int64_t rows_, width_;
  const Variation& variation_;
  int matrices_ = 0;
};

ResidualNormForwardResult Forward(const Case& c, int variation, SumPlace place) {
  return RunResidualNormForward(Lab(c, kVariations[variation]), c, place);
}
ResidualNormBackwardResult Backward(const Case& c, const ResidualNormForwardResult& forward, int variation,
                                    ResidualGradientPlace place) {
  return RunResidualNormBackward(Lab(c, kVariations[variation]), c, forward, place);
}

float AsItIs(float x) { return x; }

std::vector<ResidualNormBackend> Backends() {
  return BackendsOfInstructionSets([](int64_t target) -> ResidualNormBackend {
    return {.run_forward = Only(target, Forward),
            .run_backward = Only(target, Backward),
            .variations = std::size(kVariations),
            .stored_residual = AsItIs,
            .stored_product = AsItIs};
  });
}
INSTANTIATE_TEST_SUITE_P(Cpu, ResidualNormConformance, ::testing::ValuesIn(Backends()), BackendName());

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
    check(fields.norm && fields.shift, reference.shift, g.d_shift);
  }
}

}  // namespace
}  // namespace hadal::testing
