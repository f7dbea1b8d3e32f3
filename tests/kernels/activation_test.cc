#include "kernels/activation.h"

#include <limits>

#include "gtest/gtest.h"
#include "runtime/stream.h"
#include "tests/kernels/activation_definition.h"
#include "tests/support/each_instruction_set.h"
#include "tests/support/finite_difference.h"
#include "tests/support/strided_matrix.h"

namespace hadal::testing {
namespace {

TEST(ActivationDefinitionTest, GradientsMatchFiniteDifferences) {
  ForEachActivationCase([](const ActivationCase& c) {
    if (c.width > 100) return;
    std::vector<double> z = Widen(c.Z());
    const std::vector<double> dy = Widen(c.DY());
    EXPECT_TRUE(IsGradient(
        z, [&] { return Dot(ActivationDefinition(c, z, dy).y, dy); }, ActivationDefinition(c, z, dy).dz));
  });
}

TEST(ActivationTest, MatchesTheDefinitionOnEachInstructionSetAndAnyNumberOfThreads) {
  ForEachInstructionSet([] {
    ForEachActivationCase([](const ActivationCase& c) {
      const std::vector<float> given = c.DY();
      const ActivationResults expected = ActivationDefinition(c, Widen(c.Z()), Widen(given));
      std::vector<float> serial;
      for (const int threads : {1, 3}) {
        const Stream stream = Stream::Cpu(threads);
        StridedMatrix z(c.Z(), c.rows, c.columns()), y(c.DY(), c.rows, c.width);
        StridedMatrix dz(std::vector<float>(c.rows * c.columns(), NAN), c.rows, c.columns());
        ActivationForward(stream, {c.activation, c.gated, z.view(), c.dropout(), y.view()});
        EXPECT_TRUE(NearReference(y.dense(), expected.y, 16, 8));
        // As the feed-forward does: the gradient of y lies where the last columns of dz are written.
        const Matrix dy = Matrix(dz.view()).Columns(c.columns() - c.width, c.width);
        for (int64_t i = 0; i < c.rows * c.width; ++i) dy.row(i / c.width)[i % c.width] = given[i];
        ActivationBackward(stream, {c.activation, c.gated, z.view(), c.dropout(), dy, dz.view()});
        EXPECT_TRUE(NearReference(dz.dense(), expected.dz, 32, 8));
        EXPECT_TRUE(y.guards_intact() && dz.guards_intact());
        if (threads == 1) serial = dz.dense();
        EXPECT_EQ(dz.dense(), serial) << "threads change bits";
      }
    });
  });
}

TEST(ActivationTest, FarFromZeroItIsZeroOrTheIdentityAndNanStays) {
  for (const Activation activation : {Activation::kGelu, Activation::kGeluTanh, Activation::kSilu}) {
    const std::vector<float> z = {-1e4f, 1e4f, std::numeric_limits<float>::quiet_NaN()};
    std::vector<float> y(3), dz(3);
    const std::vector<float> dy = {1, 1, 1};
    const Stream stream = Stream::Cpu(1);
    ActivationForward(stream, {activation, false, ConstMatrix(z.data(), 1, 3), {}, Matrix(y.data(), 1, 3)});
    ActivationBackward(
        stream,
        {activation, false, ConstMatrix(z.data(), 1, 3), {}, ConstMatrix(dy.data(), 1, 3), Matrix(dz.data(), 1, 3)});
    EXPECT_EQ(y[0], 0);
    EXPECT_EQ(y[1], 1e4f);
    EXPECT_EQ(dz[0], 0);
    EXPECT_EQ(dz[1], 1);
    EXPECT_TRUE(std::isnan(y[2]) && std::isnan(dz[2]));
  }
}

}  // namespace
}  // namespace hadal::testing
