#include "kernels/linear.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/compute_thread.h"
#include "tests/support/each_instruction_set.h"
#include "tests/support/finite_difference.h"
#include "tests/support/random_inputs.h"
#include "tests/support/strided_matrix.h"

namespace hadal {
namespace {

using testing::Dot;
using testing::IsGradient;
using testing::NearReference;
using testing::NormalValues;
using testing::SameBits;
using testing::StridedMatrix;
using testing::Widen;

// Linear layers by plain loops in double precision.
struct LinearReference {
  int64_t rows = 0, in = 0, out = 0;
  std::vector<double> x;       // [rows, in]
  std::vector<double> weight;  // [out, in]
  std::vector<double> bias;    // [out], or empty
  bool relu = false;
  std::vector<double> factors;  // [rows, out], or empty

  // y = factors ⊙ relu(x·Wᵀ + b)  [rows, out]
  std::vector<double> Forward() const;

  struct Gradients {
    std::vector<double> d_product;  // [rows, out] at the product's output, after the backward of dropout and ReLU
    std::vector<double> dx;         // [rows, in]
    std::vector<double> d_weight;   // [out, in]
    std::vector<double> d_bias;     // [out]
  };
  // The gradients of Σ dy ⊙ y.
  Gradients Backward(const std::vector<double>& dy) const;

 private:
  std::vector<double> Product() const;
};

std::vector<double> LinearReference::Product() const {
  std::vector<double> z(rows * out);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t o = 0; o < out; ++o) {
      double sum = bias.empty() ? 0 : bias[o];
      for (int64_t i = 0; i < in; ++i) sum += x[r * in + i] * weight[o * in + i];
      z[r * out + o] = sum;
    }
  }
  return z;
}

std::vector<double> LinearReference::Forward() const {
  std::vector<double> y = Product();
  for (int64_t i = 0; i < rows * out; ++i) {
    if (relu && y[i] < 0) y[i] = 0;
    if (!factors.empty()) y[i] *= factors[i];
  }
  return y;
}

LinearReference::Gradients LinearReference::Backward(const std::vector<double>& dy) const {
  Gradients g{dy, std::vector<double>(rows * in), std::vector<double>(out * in), std::vector<double>(out)};
  const std::vector<double> z = Product();
  for (int64_t i = 0; i < rows * out; ++i) {
    if (!factors.empty()) g.d_product[i] *= factors[i];
    if (relu && z[i] <= 0) g.d_product[i] = 0;
  }
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t o = 0; o < out; ++o) {
      const double dz = g.d_product[r * out + o];
      g.d_bias[o] += dz;
      for (int64_t i = 0; i < in; ++i) {
        g.dx[r * in + i] += dz * weight[o * in + i];
        g.d_weight[o * in + i] += dz * x[r * in + i];
      }
    }
  }
  return g;
}

struct Shape {
  int64_t rows, in, out;
};
std::ostream& operator<<(std::ostream& out, const Shape& s) {
  return out << s.rows << " rows, " << s.in << " -> " << s.out;
}

struct Epilogue {
  bool bias = false, relu = false, dropout = false;
};
constexpr Epilogue kEpilogues[] = {{},
                                   {.bias = true},
                                   {.bias = true, .relu = true},
                                   {.relu = true, .dropout = true},
                                   {.bias = true, .relu = true, .dropout = true}};

Dropout ActivationDropout(bool on) {
  return {{.seed = 11, .step = 3, .micro_batch = 2, .sublayer = 7, .site = RandomSite::kActivation},
          on ? Dropout::Threshold(0.3) : 0};
}

// Inputs of one layer, in float for the kernel and in double for the reference.
struct Layer {
  Layer(const Shape& s, const Epilogue& e) : shape(s), epilogue(e), dropout(ActivationDropout(e.dropout)) {
    x = NormalValues(s.rows * s.in, 1);
    weight = NormalValues(s.out * s.in, 2);
    bias = NormalValues(s.out, 3);
    dy = NormalValues(s.rows * s.out, 4);
    reference = {s.rows, s.in, s.out, Widen(x), Widen(weight), e.bias ? Widen(bias) : std::vector<double>(),
                 e.relu, {}};
    for (int64_t i = 0; e.dropout && i < s.rows * s.out; ++i) {
      reference.factors.push_back(DropoutFactor(dropout, i));
    }
  }

  // The kernel's y from strided, misaligned views; a packed weight is dense.
  std::vector<float> Forward(const Stream& stream, bool packed = false) const {
    const int64_t rows = shape.rows;
    std::vector<float> panels = weight;
    if (packed) PackWeight({panels.data(), shape.out, shape.in});
    StridedMatrix xs(x, rows, shape.in, 1, padding), ws(weight, shape.out, shape.in, 1, padding);
    StridedMatrix y(std::vector<float>(rows * shape.out, NAN), rows, shape.out, 1, padding);
    LinearForward(stream, {.x = xs.view(),
                           .weight = packed ? ConstAnyMatrix(panels.data(), shape.out, shape.in, Storage::kPanels)
                                            : ConstAnyMatrix(ws.view()),
                           .bias = epilogue.bias ? ConstVector(bias.data(), shape.out) : ConstVector(),
                           .relu = epilogue.relu,
                           .dropout = dropout,
                           .y = y.view()});
    EXPECT_TRUE(y.guards_intact());
    return y.dense();
  }

  Shape shape;
  int64_t padding = 3;  // between the rows of every matrix
  Epilogue epilogue;
  Dropout dropout;
  std::vector<float> x, weight, bias, dy;
  LinearReference reference;
};

constexpr Shape kRaggedShapes[] = {{1, 1, 1},      {3, 5, 7},     {8, 16, 40},   {17, 64, 64},
                                   {33, 20, 1100}, {100, 31, 65}, {259, 64, 33}, {9, 12, 8200}};

TEST(LinearReferenceTest, GradientsMatchFiniteDifferences) {
  for (const Epilogue& epilogue : kEpilogues) {
    Layer layer({5, 4, 3}, epilogue);
    LinearReference& reference = layer.reference;
    const std::vector<double> dy = Widen(layer.dy);
    const LinearReference::Gradients g = reference.Backward(dy);
    const auto loss = [&] { return Dot(reference.Forward(), dy); };
    EXPECT_TRUE(IsGradient(reference.x, loss, g.dx));
    EXPECT_TRUE(IsGradient(reference.weight, loss, g.d_weight));
    if (epilogue.bias) {
      EXPECT_TRUE(IsGradient(reference.bias, loss, g.d_bias));
    }
  }
}

TEST(LinearForwardTest, MatchesReference) {
  testing::ForEachInstructionSet([] {
    for (const Shape& shape : kRaggedShapes) {
      for (const Epilogue& epilogue : kEpilogues) {
        SCOPED_TRACE(::testing::Message() << shape << ", bias " << epilogue.bias << ", relu " << epilogue.relu
                                          << ", dropout " << epilogue.dropout);
        const Layer layer(shape, epilogue);
        const std::vector<double> expected = layer.reference.Forward();
        const std::vector<float> y = layer.Forward(Stream::Cpu(1));
        EXPECT_TRUE(NearReference(y, expected, std::sqrt(shape.in), 8 + 2 * std::sqrt(shape.in)));
      }
    }
  });
}

TEST(LinearForwardTest, ReluKeepsNan) {
  const std::vector<float> x = {NAN}, weight(5, 1.0f);
  std::vector<float> y(5);
  LinearForward(Stream::Cpu(1),
                {.x = {x.data(), 1, 1}, .weight = {weight.data(), 5, 1}, .relu = true, .y = {y.data(), 1, 5}});
  for (const float value : y) EXPECT_TRUE(std::isnan(value));
}

// dx of this layer's product, where x itself came out of a ReLU and dropout (or not).
std::vector<float> BackwardInput(const Layer& layer, const Stream& stream, const std::vector<float>& relu_output,
                                 float mask_scale, bool accumulate) {
  const Shape& s = layer.shape;
  const int64_t padding = layer.padding;
  StridedMatrix dy(layer.dy, s.rows, s.out, 1, padding), weight(layer.weight, s.out, s.in, 1, padding);
  StridedMatrix mask(relu_output.empty() ? layer.x : relu_output, s.rows, s.in, 1, padding);
  StridedMatrix dx(accumulate ? layer.x : std::vector<float>(s.rows * s.in, NAN), s.rows, s.in, 1, padding);
  LinearBackwardInput(stream, {.dy = dy.view(),
                               .weight = weight.view(),
                               .relu_output = relu_output.empty() ? ConstMatrix() : ConstMatrix(mask.view()),
                               .mask_scale = mask_scale,
                               .accumulate = accumulate,
                               .dx = dx.view()});
  EXPECT_TRUE(dx.guards_intact());
  return dx.dense();
}

TEST(LinearBackwardInputTest, MatchesReference) {
  testing::ForEachInstructionSet([] {
    for (const Shape& shape : kRaggedShapes) {
      SCOPED_TRACE(shape);
      const Layer layer(shape, {});
      const double magnitude = std::sqrt(shape.out), multiple = 8 + 2 * std::sqrt(shape.out);
      const std::vector<double> dx = layer.reference.Backward(Widen(layer.dy)).dx;
      std::vector<double> accumulated = dx, masked = dx;
      std::vector<float> relu_output = layer.x;  // about half of it is not positive
      const float mask_scale = ActivationDropout(true).scale();
      for (size_t i = 0; i < dx.size(); ++i) {
        accumulated[i] += layer.x[i];
        relu_output[i] = std::max(relu_output[i], 0.0f);
        masked[i] = relu_output[i] > 0 ? dx[i] * mask_scale : 0;
      }
      const Stream stream = Stream::Cpu(1);
      EXPECT_TRUE(NearReference(BackwardInput(layer, stream, {}, 1, false), dx, magnitude, multiple));
      EXPECT_TRUE(NearReference(BackwardInput(layer, stream, {}, 1, true), accumulated, magnitude, multiple));
      EXPECT_TRUE(
          NearReference(BackwardInput(layer, stream, relu_output, mask_scale, false), masked, magnitude, multiple));
    }
  });
}

// The whole chain that a feed-forward sublayer runs: the mask taken from the stored output equals the mask drawn again.
TEST(LinearBackwardInputTest, MaskFromStoredOutputEqualsReluAndDropoutGradient) {
  const Shape first = {40, 24, 48}, second = {40, 48, 24};
  const Layer hidden(first, {.bias = true, .relu = true, .dropout = true});
  Layer output(second, {});
  const std::vector<float> y = hidden.Forward(Stream::Cpu(1));
  const std::vector<float> dx = BackwardInput(output, Stream::Cpu(2), y, hidden.dropout.scale(), false);

  output.reference.x = hidden.reference.Forward();
  const std::vector<double> d_hidden = output.reference.Backward(Widen(output.dy)).dx;
  const std::vector<double> expected = hidden.reference.Backward(d_hidden).d_product;
  EXPECT_TRUE(NearReference(dx, expected, 5, 16));

  std::vector<float> apart = BackwardInput(output, Stream::Cpu(1), {}, 1, false);
  ReluBackward(Stream::Cpu(2),
               {.relu_output = {y.data(), 40, 48}, .mask_scale = hidden.dropout.scale(), .dx = {apart.data(), 40, 48}});
  EXPECT_TRUE(SameBits(apart, dx)) << "the mask alone";
}

struct WeightGradients {
  std::vector<float> d_weight, d_bias;
};

WeightGradients BackwardWeight(const Layer& layer, const Stream& stream) {
  const Shape& s = layer.shape;
  const int64_t padding = layer.padding;
  StridedMatrix dy(layer.dy, s.rows, s.out, 1, padding), x(layer.x, s.rows, s.in, 1, padding);
  StridedMatrix d_weight(layer.weight, s.out, s.in, 1, padding);
  std::vector<float> d_bias = layer.bias;
  LinearBackwardWeight(stream,
                       {.dy = dy.view(), .x = x.view(), .d_weight = d_weight.view(), .d_bias = {d_bias.data(), s.out}});
  EXPECT_TRUE(d_weight.guards_intact());
  return {d_weight.dense(), d_bias};
}

TEST(LinearBackwardWeightTest, AddsToWhatIsThere) {
  testing::ForEachInstructionSet([] {
    for (const Shape& shape : kRaggedShapes) {
      SCOPED_TRACE(shape);
      const Layer layer(shape, {});
      LinearReference::Gradients expected = layer.reference.Backward(Widen(layer.dy));
      for (size_t i = 0; i < expected.d_weight.size(); ++i) expected.d_weight[i] += layer.weight[i];
      for (size_t i = 0; i < expected.d_bias.size(); ++i) expected.d_bias[i] += layer.bias[i];
      const double magnitude = std::sqrt(shape.rows), multiple = 8 + 2 * std::sqrt(shape.rows);
      const WeightGradients got = BackwardWeight(layer, Stream::Cpu(1));
      EXPECT_TRUE(NearReference(got.d_weight, expected.d_weight, magnitude, multiple));
      EXPECT_TRUE(NearReference(got.d_bias, expected.d_bias, magnitude, multiple));
    }
  });
}

TEST(LinearTest, NoRowsLeaveEverythingAlone) {
  std::vector<float> weight = {1, 2}, d_weight = {3, 4}, d_bias = {5};
  const Stream stream = Stream::Cpu(2);
  LinearForward(stream, {.x = {nullptr, 0, 2}, .weight = {weight.data(), 1, 2}, .y = {nullptr, 0, 1}});
  LinearBackwardInput(stream, {.dy = {nullptr, 0, 1}, .weight = {weight.data(), 1, 2}, .dx = {nullptr, 0, 2}});
  LinearBackwardWeight(
      stream,
      {.dy = {nullptr, 0, 1}, .x = {nullptr, 0, 2}, .d_weight = {d_weight.data(), 1, 2}, .d_bias = {d_bias.data(), 1}});
  EXPECT_EQ(d_weight, (std::vector<float>{3, 4}));
  EXPECT_EQ(d_bias, (std::vector<float>{5}));
}

void ExpectThreadsChangeNoBit(const Layer& layer) {
  SCOPED_TRACE(layer.shape);
  const float mask_scale = layer.dropout.scale();
  const std::vector<float> y = layer.Forward(Stream::Cpu(1));
  const std::vector<float> added = BackwardInput(layer, Stream::Cpu(1), {}, 1, true);
  const std::vector<float> masked = BackwardInput(layer, Stream::Cpu(1), layer.x, mask_scale, false);
  const WeightGradients weight = BackwardWeight(layer, Stream::Cpu(1));
  for (int threads = 2; threads <= 4; ++threads) {
    SCOPED_TRACE(threads);
    const Stream stream = Stream::Cpu(threads);
    EXPECT_TRUE(SameBits(y, layer.Forward(stream)));
    EXPECT_TRUE(SameBits(added, BackwardInput(layer, stream, {}, 1, true)));
    EXPECT_TRUE(SameBits(masked, BackwardInput(layer, stream, layer.x, mask_scale, false)));
    const WeightGradients again = BackwardWeight(layer, stream);
    EXPECT_TRUE(SameBits(weight.d_weight, again.d_weight));
    EXPECT_TRUE(SameBits(weight.d_bias, again.d_bias));
  }
}

// The three products by loops in the order that kernels/cpu/product.h states. `fused`: with FMA.
struct LoopProduct {
  bool fused;
  const float *a, *b;
  int64_t a_step, b_step;  // from one term to the next

  // A chain of `count` terms from `first`, which starts at `sum`.
  float Chain(int64_t first, int64_t count, float sum) const {
    for (int64_t k = first; k < first + count; ++k) {
      const float x = a[k * a_step], y = b[k * b_step];
      sum = fused ? std::fma(x, y, sum) : sum + x * y;
    }
    return sum;
  }
};

struct Products {
  std::vector<float> y, dx, added_dx, d_weight;
};

// dx += and dW += begin with x and W.
Products LoopsOf(const Layer& layer, bool fused) {
  const auto [rows, in, out] = layer.shape;
  const float *x = layer.x.data(), *w = layer.weight.data(), *dy = layer.dy.data();
  Products p{{}, {}, {}, layer.weight};
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t o = 0; o < out; ++o) p.y.push_back(LoopProduct{fused, x + r * in, w + o * in, 1, 1}.Chain(0, in, 0));
    for (int64_t i = 0; i < in; ++i) {
      const LoopProduct product{fused, dy + r * out, w + i, 1, in};
      p.dx.push_back(product.Chain(0, out, 0));
      p.added_dx.push_back(product.Chain(0, out, x[r * in + i]));
    }
  }
  for (int64_t o = 0; o < out; ++o) {
    for (int64_t i = 0; i < in; ++i) {
      const LoopProduct product{fused, dy + o, x + i, out, in};
      for (int64_t r = 0; r < rows; r += 512) {
        p.d_weight[o * in + i] += product.Chain(r, std::min<int64_t>(512, rows - r), 0);
      }
    }
  }
  return p;
}

// A NaN has more than one pattern of bits.
::testing::AssertionResult SameBitsOrNan(std::vector<float> a, std::vector<float> b) {
  for (std::vector<float>* values : {&a, &b}) {
    for (float& value : *values) value = std::isnan(value) ? NAN : value;
  }
  return SameBits(a, b);
}

void ExpectTheOrderOfLoops(const Layer& layer, int threads) {
  const Products fused = LoopsOf(layer, true), apart = LoopsOf(layer, false);
  testing::ForEachInstructionSet([&](bool fuses) {
    const Products& expected = fuses ? fused : apart;
    const Stream stream = Stream::Cpu(threads);
    EXPECT_TRUE(SameBitsOrNan(layer.Forward(stream), expected.y));
    if (layer.shape.out % kPackedRows == 0) {
      EXPECT_TRUE(SameBitsOrNan(layer.Forward(stream, /*packed=*/true), expected.y));
    }
    EXPECT_TRUE(SameBitsOrNan(BackwardInput(layer, stream, {}, 1, false), expected.dx));
    EXPECT_TRUE(SameBitsOrNan(BackwardInput(layer, stream, {}, 1, true), expected.added_dx));
    EXPECT_TRUE(SameBitsOrNan(BackwardWeight(layer, stream).d_weight, expected.d_weight));
  });
}

// Each of rows, in and out is once the number of terms. The sizes lie around tiles, panels and blocks of terms.
TEST(LinearOrderTest, EveryElementHasTheBitsOfTheStatedOrder) {
  constexpr int64_t kRows[] = {1, 2, 5, 6, 7, 8, 9, 14, 15, 29, 70, 71, 513};
  constexpr int64_t kIn[] = {1, 4, 8, 15, 16, 17, 32, 33, 257}, kOut[] = {1, 3, 16, 31, 32, 65, 255, 512, 516};
  int count = 0;
  for (const int64_t rows : kRows) {
    for (int64_t i = 0; i < std::ssize(kIn); ++i) {
      const Shape shape = {rows, kIn[i], kOut[(i + count / 9) % std::ssize(kOut)]};
      SCOPED_TRACE(shape);
      Layer layer(shape, {});
      layer.padding = count % 4;
      ExpectTheOrderOfLoops(layer, 1 + count++ % 4);
    }
  }
  for (const Shape& shape : {Shape{3, 5, 2100}, {4, 2100, 6}, {2100, 7, 5}, {9, 13, 1030}, {40, 1030, 320}}) {
    SCOPED_TRACE(shape);
    ExpectTheOrderOfLoops(Layer(shape, {}), 3);
  }
}

// Denormals count as zero on every thread that computes (runtime/compute_thread.h), so in the loops, too.
TEST(LinearOrderTest, NanInfinityAndDenormalsAsInTheLoops) {
  PrepareComputeThread();
  Layer layer({37, 40, 50}, {});
  layer.x[3 * 40 + 7] = NAN, layer.x[30 * 40 + 39] = INFINITY;
  for (int64_t k = 0; k < 40; ++k) layer.x[2 * 40 + k] *= 1e-40f;  // denormal terms and sums
  layer.weight[5 * 40 + 7] = 0, layer.weight[49 * 40 + 39] = -INFINITY, layer.dy[36 * 50 + 49] = INFINITY;
  ExpectTheOrderOfLoops(layer, 2);
}

TEST(LinearTest, ThreadsChangeNoBitOfRaggedShapes) {
  for (const Shape& shape : kRaggedShapes) ExpectThreadsChangeNoBit(Layer(shape, kEpilogues[4]));
}

// The model's own shapes, dense.
TEST(LinearTest, ThreadsChangeNoBitOfModelShapes) {
  constexpr Shape kModelShapes[] = {{1000, 64, 64},   {1000, 64, 256},   {1000, 256, 64},
                                    {1000, 64, 1003}, {1000, 512, 1536}, {1000, 2048, 512}};
  for (const Shape& shape : kModelShapes) {
    Layer layer(shape, {.bias = true, .relu = true});
    layer.padding = 0;
    for (const int64_t rows : {17, 33, 100, 1000}) {
      layer.shape.rows = rows;  // the first rows of x and dy
      ExpectThreadsChangeNoBit(layer);
    }
  }
}

}  // namespace
}  // namespace hadal
