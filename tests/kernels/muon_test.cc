// Muon on one matrix, on the CPU and on a device: momentum, orthogonalisation, step.
#include "kernels/muon.h"

#include <cmath>

#include "gtest/gtest.h"
#include "kernels/orthogonalize.h"
#include "kernels/sum_of_squares.h"
#include "runtime/arena.h"
#include "tests/support/each_instruction_set.h"
#include "tests/support/muon_reference.h"
#include "tests/support/random_inputs.h"
#include "tests/support/test_device.h"

namespace hadal::testing {
namespace {

struct Shape {
  int64_t rows, columns;
  int64_t elements() const { return rows * columns; }
};

// A matrix, its gradient and momentum on a stream's device.
class MuonMatrix {
 public:
  MuonMatrix(const Stream& stream, Shape shape, Storage storage, const std::vector<float>& weights)
      : stream_(stream), shape_(shape), storage_(storage) {
    const int64_t workspace = OrthogonalizeFloats(shape.rows, shape.columns, storage);
    ArenaLayout layout;
    const ArenaSlice places[] = {layout.Reserve<float>("", shape.elements()),
                                 layout.Reserve<float>("", shape.elements()),
                                 layout.Reserve<float>("", shape.elements()), layout.Reserve<float>("", workspace)};
    const ArenaSlice rounded = layout.Reserve<BFloat16>("", stream.device() == nullptr ? 0 : shape.elements());
    arena_ = *Arena::Allocate(layout, stream.device());
    for (int i = 0; i < 3; ++i) vectors_[i] = {arena_.Get<float>(places[i]), shape.elements()};
    workspace_ = {arena_.Get<float>(places[3]), workspace};
    if (stream.device() != nullptr) rounded_ = {arena_.Get<BFloat16>(rounded), shape.elements()};
    Write(vectors_[0], weights);
    stream.Clear(vectors_[2].data, shape.elements() * int64_t{sizeof(float)});
  }

  void Orthogonalize(const std::vector<float>& u, const NewtonSchulz& iteration = {}) {
    Write(vectors_[1], u);
    OrthogonalizeGradient(iteration);
  }
  void Update(const std::vector<float>& gradient, const MuonMomentumArgs& momentum, float decay, float step_size) {
    Write(vectors_[1], gradient);
    MuonMomentumArgs args = momentum;
    args.gradient = vectors_[1];
    args.momentum = vectors_[2];
    MuonMomentum(stream_, args);
    OrthogonalizeGradient({});
    MuonStep(stream_, {.parameter = vectors_[0],
                       .direction = vectors_[1],
                       .rounded = rounded_,
                       .decay = decay,
                       .step_size = step_size});
  }
  std::vector<float> weights() const { return Read(vectors_[0]); }
  std::vector<float> direction() const { return Read(vectors_[1]); }
  std::vector<float> rounded() const {
    return HostValues(stream_, AnyMatrix(rounded_.data, 1, rounded_.size, Storage::kBFloat16));
  }

 private:
  void OrthogonalizeGradient(const NewtonSchulz& iteration) {
    const SquaresSlice slice{vectors_[1], 0};
    double squares = 0;
    SumsOfSquares(stream_, {.slices = {&slice, 1}, .sums = {&squares, 1}});
    hadal::Orthogonalize(stream_, {.u = {vectors_[1].data, shape_.rows, shape_.columns},
                                   .squares = squares,
                                   .iteration = iteration,
                                   .storage = storage_,
                                   .workspace = workspace_});
  }
  void Write(Vector to, const std::vector<float>& values) {
    stream_.FromHost(to.data, values.data(), to.size * int64_t{sizeof(float)});
  }
  std::vector<float> Read(Vector from) const { return HostValues(stream_, Matrix(from.data, 1, from.size)); }

  const Stream stream_;
  const Shape shape_;
  const Storage storage_;
  Arena arena_;
  Vector vectors_[3];  // weights, gradient, momentum
  Vector workspace_;
  VectorOf<BFloat16> rounded_;
};

// Full-rank gradients without a library's random numbers.
std::vector<float> Gradient(int64_t update, Shape shape) {
  std::vector<float> gradient;
  for (int64_t i = 0; i < shape.elements(); ++i) {
    gradient.push_back(static_cast<float>(
        static_cast<double>((i * i * 37 + i * 11 * update + update * update * 53) % 101) / 101 - 0.5));
  }
  return gradient;
}

double Distance(const std::vector<float>& a, const std::vector<double>& b) {
  double squares = 0;
  for (size_t i = 0; i < b.size(); ++i) squares += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(squares);
}

// Weights after 20 updates by torch.optim.Muon of PyTorch 2.15: lr 0.02, weight_decay 0.1, momentum 0.9; first weights
// Gradient(99), gradients Gradient(1) … Gradient(20). `exact`: in float64, _zeropower_via_newtonschulz without its cast
// to bf16. `torch`: the class itself, in float32 and bf16.
struct Golden {
  Shape shape;
  bool nesterov;
  double scale;  // by adjust_lr_fn
  std::vector<double> exact, torch;
};
const Golden kGolden[] = {
    {{3, 5},
     true,
     1,  // "original"
     {-0.384696630, -0.231905359, -0.442652252, 0.445435445, -0.426500973, -0.223980527, 0.544699381, -0.015692383,
      0.244981709, 0.349161021, 0.082287862, -0.444859546, -0.156821831, -0.388538245, 0.407203346},
     {-0.385104269, -0.233503044, -0.441492647, 0.445205688, -0.426948428, -0.223894671, 0.545995176, -0.015874401,
      0.244547576, 0.349924177, 0.082981281, -0.445063233, -0.156639114, -0.388592720, 0.406865805}},
    {{5, 3},
     false,
     0.2 * 2.2360679775,  // "match_rms_adamw"
     {-0.370088398, -0.256539520, -0.409381405, 0.349452146, -0.422493320, -0.283975359, 0.518228930, 0.024296991,
      0.223377959, 0.327893266, 0.093744988, -0.459630493, -0.213935803, -0.387491917, 0.367443623},
     {-0.369799018, -0.256962061, -0.409376383, 0.350050598, -0.423088253, -0.284406871, 0.518482983, 0.024356764,
      0.223585680, 0.327758998, 0.093912311, -0.459535152, -0.213883042, -0.387964189, 0.367160141}}};

TEST(Muon, TwentyUpdatesAreTorchs) {
  const std::unique_ptr<Device> device = MakeTestDevice(/*seed=*/1);
  for (const Golden& golden : kGolden) {
    const std::vector<float> start = Gradient(99, golden.shape);
    const double moved = Distance(start, golden.exact);
    const auto run = [&](const Stream& stream, Storage storage) {
      MuonMatrix matrix(stream, golden.shape, storage, start);
      for (int64_t t = 1; t <= 20; ++t) {
        std::vector<float> gradient = Gradient(t, golden.shape);
        for (float& g : gradient) g *= 4;  // and clipping undoes it
        matrix.Update(gradient, {.decay = 0.9, .nesterov = golden.nesterov, .gradient_scale = 0.25}, 0.02f * 0.1f,
                      static_cast<float>(0.02 * golden.scale));
      }
      if (stream.device() != nullptr) {
        const std::vector<float> weights = matrix.weights(), rounded = matrix.rounded();
        for (size_t i = 0; i < weights.size(); ++i) {
          EXPECT_EQ(rounded[i], Widened(RoundedToBFloat16(weights[i])));
        }
      }
      return matrix.weights();
    };
    const auto expect_exact = [&](const std::vector<float>& weights) {
      for (size_t i = 0; i < weights.size(); ++i) EXPECT_NEAR(weights[i], golden.exact[i], 1e-6) << i;
    };
    ForEachInstructionSet([&] { expect_exact(run(Stream::Cpu(1), Storage::kFloat32)); });
    expect_exact(run(Stream::On(*device, 1), Storage::kFloat32));
    const double of_torch = Distance({golden.torch.begin(), golden.torch.end()}, golden.exact);
    EXPECT_LT(of_torch, 0.05 * moved);
    EXPECT_LT(Distance(run(Stream::On(*device, 1), Storage::kBFloat16), golden.exact), 2 * of_torch);
  }
}

// Shapes whose products below the diagonal are cut into blocks, and both numbers of steps where the result lies in the
// workspace before the last product.
TEST(Muon, OrthogonalisesEveryShapeWithTheSameBits) {
  for (const Shape shape : {Shape{1, 1}, {1, 7}, {9, 1}, {17, 40}, {150, 61}, {140, 300}, {260, 270}}) {
    for (const int32_t steps : {5, 2}) {
      if (steps > 2 && shape.rows > 200) continue;  // the reference is slow
      SCOPED_TRACE(::testing::Message() << shape.rows << " x " << shape.columns << ", " << steps << " steps");
      const NewtonSchulz iteration{.steps = steps};
      const std::vector<float> u = NormalValues(shape.elements(), /*seed=*/3, steps == 5 ? 1e-3f : 1e-7f);
      std::vector<double> expected(u.begin(), u.end());
      OrthogonalizeReference(expected, shape.rows, shape.columns, iteration);
      std::vector<float> with_fma;
      ForEachInstructionSet([&](bool fma) {
        for (const int threads : {1, 3}) {
          MuonMatrix matrix(Stream::Cpu(threads), shape, Storage::kFloat32, u);
          matrix.Orthogonalize(u, iteration);
          EXPECT_TRUE(NearInL2(matrix.direction(), expected, 1e-5));
          if (!fma) continue;
          if (with_fma.empty()) with_fma = matrix.direction();
          EXPECT_TRUE(SameBits(matrix.direction(), with_fma)) << threads << " threads";
        }
      });
    }
  }
}

TEST(Muon, ADeviceOrthogonalisesInBothTypes) {
  const std::unique_ptr<Device> device = MakeTestDevice(/*seed=*/2);
  for (const Shape shape : {Shape{5, 24}, {33, 16}, {3, 7}, {16, 16}}) {
    for (const int32_t steps : {5, 2}) {
      SCOPED_TRACE(::testing::Message() << shape.rows << " x " << shape.columns << ", " << steps << " steps");
      const NewtonSchulz iteration{.steps = steps};
      const std::vector<float> u = NormalValues(shape.elements(), /*seed=*/3);
      std::vector<double> expected(u.begin(), u.end());
      OrthogonalizeReference(expected, shape.rows, shape.columns, iteration);
      for (const auto& [storage, allowed] : {std::pair(Storage::kFloat32, 1e-5), {Storage::kBFloat16, 0.05}}) {
        MuonMatrix matrix(Stream::On(*device, 1), shape, storage, u);
        matrix.Orthogonalize(u, iteration);
        EXPECT_TRUE(NearInL2(matrix.direction(), expected, allowed));
      }
    }
  }
}

// Also where threads split the elements. A device's: cuda_muon_test.cc.
TEST(Muon, ElementsHaveTheSameBitsForEveryNumberOfThreads) {
  const Shape shape{1, 9001};
  std::vector<float> first;
  for (const Stream& stream : {Stream::Cpu(1), Stream::Cpu(3)}) {
    ArenaLayout layout;
    const ArenaSlice places[] = {layout.Reserve<float>("", shape.elements() + 1),
                                 layout.Reserve<float>("", shape.elements())};
    const Arena arena = *Arena::Allocate(layout, stream.device());
    const Vector gradient{arena.Get<float>(places[0]) + 1, shape.elements()};  // misaligned
    const Vector weights{arena.Get<float>(places[1]), shape.elements()};
    for (const Vector& v : {gradient, weights}) {
      stream.FromHost(v.data, NormalValues(v.size, 7).data(), v.size * int64_t{sizeof(float)});
    }
    MuonMomentum(stream, {.gradient = gradient, .momentum = weights, .decay = 0.9});
    MuonStep(stream, {.parameter = weights, .direction = gradient, .decay = 1e-3f, .step_size = 0.1f});
    const std::vector<float> outcome = HostValues(stream, Matrix(weights.data, 1, weights.size));
    if (first.empty()) first = outcome;
    EXPECT_TRUE(SameBits(outcome, first));
  }
}

TEST(Muon, AZeroGradientMovesNothing) {
  MuonMatrix matrix(Stream::Cpu(1), {3, 4}, Storage::kFloat32, std::vector<float>(12, 1.0f));
  matrix.Update(std::vector<float>(12), {}, /*decay=*/0, /*step_size=*/1);
  EXPECT_EQ(matrix.weights(), std::vector<float>(12, 1.0f));
}

}  // namespace
}  // namespace hadal::testing
