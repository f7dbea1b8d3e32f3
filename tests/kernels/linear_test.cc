// Linear layers on the CPU beside plain loops in the order of sums that kernels/cpu/product.h states.
#include "kernels/linear.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/compute_thread.h"
#include "runtime/stream.h"
#include "tests/support/each_instruction_set.h"
#include "tests/support/random_inputs.h"
#include "tests/support/strided_matrix.h"

namespace hadal {
namespace {

using testing::NormalValues;
using testing::SameBits;
using testing::StridedMatrix;

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

// Inputs of one layer.
struct Layer {
  Layer(const Shape& s, const Epilogue& e) : shape(s), epilogue(e), dropout(ActivationDropout(e.dropout)) {
    x = NormalValues(s.rows * s.in, 1);
    weight = NormalValues(s.out * s.in, 2);
    bias = NormalValues(s.out, 3);
    dy = NormalValues(s.rows * s.out, 4);
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
};

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

// The whole chain that a feed-forward sublayer runs: the mask taken from the stored output equals the mask drawn again.
TEST(LinearBackwardInputTest, MaskFromStoredOutputEqualsReluAndDropoutGradient) {
  const Shape first = {40, 24, 48}, second = {40, 48, 24};
  const Layer hidden(first, {.bias = true, .relu = true, .dropout = true}), output(second, {});
  const std::vector<float> y = hidden.Forward(Stream::Cpu(1));
  const std::vector<float> before_relu = Layer(first, {.bias = true}).Forward(Stream::Cpu(1));
  std::vector<float> apart = BackwardInput(output, Stream::Cpu(1), {}, 1, false), expected = apart;
  for (size_t i = 0; i < expected.size(); ++i) {
    const float factor = DropoutFactor(hidden.dropout, i);
    expected[i] = before_relu[i] > 0 && factor > 0 ? expected[i] * factor : 0;
  }
  EXPECT_TRUE(SameBits(BackwardInput(output, Stream::Cpu(2), y, hidden.dropout.scale(), false), expected));
  ReluBackward(Stream::Cpu(2),
               {.relu_output = {y.data(), 40, 48}, .mask_scale = hidden.dropout.scale(), .dx = {apart.data(), 40, 48}});
  EXPECT_TRUE(SameBits(apart, expected)) << "the mask alone";
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

constexpr float kMaskScale = 1.25f;

// A product by loops. `fused`: with FMA.
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
  std::vector<float> y, dx, added_dx, masked_dx, d_weight, d_bias;
};

// dx +=, dW += and db += begin with x, W and b; x is the output of the ReLU whose mask dx has, too.
Products LoopsOf(const Layer& layer, bool fused) {
  const auto [rows, in, out] = layer.shape;
  const float *x = layer.x.data(), *w = layer.weight.data(), *dy = layer.dy.data();
  Products p{{}, {}, {}, {}, layer.weight, layer.bias};
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t o = 0; o < out; ++o) {
      float y = LoopProduct{fused, x + r * in, w + o * in, 1, 1}.Chain(0, in, 0);
      if (layer.epilogue.bias) y += layer.bias[o];
      if (layer.epilogue.relu && y < 0) y = 0;  // keeps a NaN
      p.y.push_back(layer.epilogue.dropout ? y * DropoutFactor(layer.dropout, r * out + o) : y);
      p.d_bias[o] += dy[r * out + o];
    }
    for (int64_t i = 0; i < in; ++i) {
      const LoopProduct product{fused, dy + r * out, w + i, 1, in};
      p.dx.push_back(product.Chain(0, out, 0));
      p.added_dx.push_back(product.Chain(0, out, x[r * in + i]));
      p.masked_dx.push_back(x[r * in + i] > 0 ? p.dx.back() * kMaskScale : 0);
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
    EXPECT_TRUE(SameBitsOrNan(BackwardInput(layer, stream, layer.x, kMaskScale, false), expected.masked_dx));
    const WeightGradients gradients = BackwardWeight(layer, stream);
    EXPECT_TRUE(SameBitsOrNan(gradients.d_weight, expected.d_weight));
    EXPECT_TRUE(SameBitsOrNan(gradients.d_bias, expected.d_bias));
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
      Layer layer(shape, kEpilogues[count % std::size(kEpilogues)]);
      layer.padding = count % 4;
      ExpectTheOrderOfLoops(layer, 1 + count++ % 4);
    }
  }
  for (const Shape& shape : {Shape{3, 5, 2100},
                             {4, 2100, 6},
                             {2100, 7, 5},
                             {9, 13, 1030},
                             {40, 1030, 320},
                             {33, 20, 1100},
                             {259, 64, 33},
                             {9, 12, 8200}}) {
    SCOPED_TRACE(shape);
    for (const Epilogue& epilogue : kEpilogues) ExpectTheOrderOfLoops(Layer(shape, epilogue), 3);
  }
}

// Denormals count as zero on every thread that computes (runtime/compute_thread.h), so in the loops, too.
TEST(LinearOrderTest, NanInfinityAndDenormalsAsInTheLoops) {
  PrepareComputeThread();
  Layer layer({37, 40, 50}, {});
  layer.x[3 * 40 + 7] = NAN, layer.x[30 * 40 + 39] = INFINITY;
  for (int64_t k = 0; k < 40; ++k) layer.x[2 * 40 + k] *= 1e-40f;  // denormal terms and sums
  layer.weight[5 * 40 + 7] = 0, layer.weight[49 * 40 + 39] = -INFINITY, layer.dy[36 * 50 + 49] = INFINITY;
  for (const bool relu : {false, true}) {
    layer.epilogue.relu = relu;
    ExpectTheOrderOfLoops(layer, 2);
  }
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
