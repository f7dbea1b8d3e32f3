// The activation of a feed-forward sublayer: the CPU on each instruction set and the device's kernels, against the
// definition in double.
#include "kernels/activation.h"

#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/activation.h"
#include "kernels/cuda/dropout.h"
#include "runtime/random.h"
#include "tests/support/each_instruction_set.h"
#include "tests/support/finite_difference.h"
#include "tests/support/kernel_device.h"
#include "tests/support/random_inputs.h"
#include "tests/support/strided_matrix.h"

namespace hadal::testing {
namespace {

using cuda::BFloat16;

double Act(Activation activation, double t) {
  switch (activation) {
    case Activation::kRelu:
      return std::max(0.0, t);
    case Activation::kGelu:
      return t * std::erfc(-t / std::numbers::sqrt2) / 2;
    case Activation::kGeluTanh:
      return t / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (t + 0.044715 * t * t * t)));
    case Activation::kSilu:
      return t / (1 + std::exp(-t));
  }
  return 0;
}
double Slope(Activation activation, double t) {
  switch (activation) {
    case Activation::kRelu:
      return t > 0 ? 1 : 0;
    case Activation::kGelu:
      return std::erfc(-t / std::numbers::sqrt2) / 2 + t * std::exp(-t * t / 2) / std::sqrt(2 * std::numbers::pi);
    case Activation::kGeluTanh: {
      const double c = std::sqrt(2 / std::numbers::pi), h = std::tanh(c * (t + 0.044715 * t * t * t));
      return (1 + h) / 2 + t / 2 * (1 - h * h) * c * (1 + 3 * 0.044715 * t * t);
    }
    case Activation::kSilu: {
      const double s = 1 / (1 + std::exp(-t));
      return s + t * s * (1 - s);
    }
  }
  return 0;
}

struct Case {
  Activation activation;
  bool gated, dropped;
  int64_t rows, width;

  int64_t columns() const { return (gated ? 2 : 1) * width; }
  Dropout dropout() const {
    return {{.seed = 7, .step = 2, .micro_batch = 1, .sublayer = 3}, dropped ? Dropout::Threshold(0.25) : 0};
  }
  // Wide enough for tails.
  std::vector<float> Z() const {
    std::vector<float> z = NormalValues(rows * columns(), 1);
    for (float& t : z) t *= 3;
    return z;
  }
  std::vector<float> DY() const { return NormalValues(rows * width, 2); }
};

struct Results {
  std::vector<double> y, dz;
};
Results Definition(const Case& c, const std::vector<double>& z, const std::vector<double>& dy) {
  Results results{{}, std::vector<double>(z.size())};
  for (int64_t i = 0; i < c.rows * c.width; ++i) {
    const int64_t at = i / c.width * c.columns() + i % c.width;
    const double factor = c.dropped ? DropoutFactor(c.dropout(), i) : 1, linear = c.gated ? z[at + c.width] : 1;
    results.y.push_back(factor * Act(c.activation, z[at]) * linear);
    results.dz[at] = factor * dy[i] * linear * Slope(c.activation, z[at]);
    if (c.gated) results.dz[at + c.width] = factor * dy[i] * Act(c.activation, z[at]);
  }
  return results;
}

template <typename Check>
void ForEachCase(const Check& check) {
  for (const Activation activation : {Activation::kRelu, Activation::kGelu, Activation::kGeluTanh, Activation::kSilu}) {
    for (const bool gated : {false, true}) {
      for (const auto& [rows, width] : {std::pair<int64_t, int64_t>(1, 1), {7, 37}, {5, 64}, {2, 1100}}) {
        const Case c{activation, gated, rows != 5, rows, width};
        SCOPED_TRACE(::testing::Message() << "activation " << static_cast<int>(activation) << ", gated " << gated
                                          << ", " << rows << " x " << width);
        check(c);
      }
    }
  }
}

TEST(ActivationDefinition, GradientsMatchFiniteDifferences) {
  ForEachCase([](const Case& c) {
    if (c.width > 100) return;
    std::vector<double> z = Widen(c.Z());
    const std::vector<double> dy = Widen(c.DY());
    EXPECT_TRUE(IsGradient(
        z, [&] { return Dot(Definition(c, z, dy).y, dy); }, Definition(c, z, dy).dz));
  });
}

TEST(ActivationTest, MatchesTheDefinitionOnEachInstructionSetAndAnyNumberOfThreads) {
  ForEachInstructionSet([] {
    ForEachCase([](const Case& c) {
      const Results expected = Definition(c, Widen(c.Z()), Widen(c.DY()));
      std::vector<float> serial;
      for (const int threads : {1, 3}) {
        const Stream stream = Stream::Cpu(threads);
        StridedMatrix z(c.Z(), c.rows, c.columns()), y(c.DY(), c.rows, c.width);
        StridedMatrix dz(std::vector<float>(c.rows * c.columns(), NAN), c.rows, c.columns());
        ActivationForward(stream, {c.activation, c.gated, z.view(), c.dropout(), y.view()});
        EXPECT_TRUE(NearReference(y.dense(), expected.y, 16, 8));
        // As the feed-forward does: the gradient of y lies where the last columns of dz are written.
        const Matrix dy = Matrix(dz.view()).Columns(c.columns() - c.width, c.width);
        for (int64_t i = 0; i < c.rows * c.width; ++i) dy.row(i / c.width)[i % c.width] = c.DY()[i];
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

template <typename T>
class CudaActivationTest : public ::testing::Test {};
using StoredTypes = ::testing::Types<float, BFloat16>;
TYPED_TEST_SUITE(CudaActivationTest, StoredTypes);

TYPED_TEST(CudaActivationTest, MatchesTheDefinition) {
  using T = TypeParam;
  const double roundoff = std::is_same_v<T, float> ? 0 : kBFloat16Roundoff;
  ForEachCase([&](const Case& c) {
    for (const Placement& place : {Placement{}, Placement{3, 5}}) {
      KernelDevice device(/*seed=*/1);
      const std::vector<float> values = Rounded<T>(c.Z()), gradient = Rounded<T>(c.DY());
      const Results expected = Definition(c, Widen(values), Widen(gradient));
      Dropout dropout = c.dropout();
      DeviceVectorOf<RandomPosition> position(device, std::vector{cuda::PositionOf(dropout)});
      dropout.device_position = position.data();
      DeviceMatrixOf<T> z(device, values, c.rows, c.columns(), place), y(device, gradient, c.rows, c.width, place);
      DeviceMatrixOf<T> dz(device, values, c.rows, c.columns(), place);
      cuda::ActivationBackward(device.stream(), {c.activation, c.gated, z.view(), dropout, y.view(), dz.view()});
      cuda::ActivationForward(device.stream(), {c.activation, c.gated, z.view(), dropout, y.view()});
      EXPECT_TRUE(NearReference(y.dense(), expected.y, 16, 8, roundoff));
      EXPECT_TRUE(NearReference(dz.dense(), expected.dz, 32, 8, roundoff));
      EXPECT_TRUE(y.guards_intact() && dz.guards_intact());
    }
  });
}

}  // namespace
}  // namespace hadal::testing
