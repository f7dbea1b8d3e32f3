#include "kernels/cuda/embedding.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/embedding_reference.h"
#include "tests/support/kernel_device.h"
#include "tests/support/random_inputs.h"
#include "tests/support/strided_matrix.h"

namespace hadal::testing {
namespace {

using cuda::BFloat16;

constexpr int64_t kVocabulary = 13;
constexpr float kMultiplier = 2.5f;

template <typename T, typename S>
struct Types {
  using Table = T;
  using Stream = S;
};

template <typename T>
class CudaEmbeddingTest : public ::testing::Test {
 protected:
  using Table = typename T::Table;
  using Stream = typename T::Stream;
  static constexpr bool kRounds = !std::is_same_v<Stream, float>;

  struct Case {
    Case(const std::vector<int32_t>& sentence_offsets, int64_t width, bool with_dropout)
        : rows(sentence_offsets.back()), width(width) {
      table = Rounded<Table>(NormalValues(kVocabulary * width, 1));
      positions = NormalValues(rows * width, 2);
      dx = Rounded<Stream>(NormalValues(rows * width, 3));
      d_table = NormalValues(kVocabulary * width, 4);
      dropout = {{.seed = 77, .step = 5, .micro_batch = 3}, with_dropout ? Dropout::Threshold(0.3) : 0};
      for (int64_t row = 0; row < rows; ++row) tokens.push_back(static_cast<int32_t>(row * row % 7 + row % 2));
      for (size_t n = 0; n + 1 < sentence_offsets.size(); ++n) {
        for (int32_t r = sentence_offsets[n]; r < sentence_offsets[n + 1]; ++r) {
          row_positions.push_back(r - sentence_offsets[n]);
        }
      }
      reference = {width, tokens, sentence_offsets, Widen(table), Widen(positions), {}, kMultiplier};
      for (int64_t i = 0; with_dropout && i < rows * width; ++i) {
        reference.factors.push_back(DropoutFactor(dropout, i));
      }
    }
    int64_t rows, width;
    Dropout dropout;
    std::vector<float> table, positions, dx, d_table;
    std::vector<int32_t> tokens, row_positions;
    EmbeddingReference reference;
  };

  static std::vector<float> Forward(const Case& c, Placement place, uint64_t seed) {
    KernelDevice device(seed);
    DeviceVectorOf<int32_t> tokens(device, c.tokens), row_positions(device, c.row_positions);
    DeviceMatrixOf<Table> table(device, c.table, kVocabulary, c.width, place);
    DeviceMatrixOf<float> positions(device, c.positions, c.rows, c.width, place);
    DeviceMatrixOf<Stream> x(device, std::vector<float>(c.rows * c.width, NAN), c.rows, c.width, place);
    DeviceVectorOf<cuda::RandomPosition> position(device, {cuda::PositionOf(c.dropout)});
    cuda::EmbeddingForwardArgs<Table, Stream> args = {.rows = c.rows, .width = c.width, .multiplier = kMultiplier};
    args.tokens = tokens.data(), args.row_positions = row_positions.data();
    args.table = table.view(), args.positions = positions.view();
    args.dropout = cuda::MakeDeviceDropout(c.dropout, position.data());
    args.x = x.view();
    cuda::EmbeddingForward(device.stream(), args);
    EXPECT_TRUE(x.guards_intact());
    return x.dense();
  }

  static std::vector<float> Backward(const Case& c, Placement place, uint64_t seed) {
    KernelDevice device(seed);
    const cuda::TokenGroups groups = cuda::GroupRowsByToken(c.tokens);
    DeviceVectorOf<int32_t> count(device, std::vector<int32_t>(1, groups.tokens.size())), starts(device, groups.starts);
    DeviceVectorOf<int32_t> group_tokens(device, groups.tokens), sorted_rows(device, groups.sorted_rows);
    DeviceMatrixOf<Stream> dx(device, c.dx, c.rows, c.width, place);
    DeviceMatrixOf<float> d_table(device, c.d_table, kVocabulary, c.width, place);
    DeviceVectorOf<cuda::RandomPosition> position(device, {cuda::PositionOf(c.dropout)});
    cuda::EmbeddingBackwardArgs<Stream> args = {.max_groups = c.rows, .width = c.width, .multiplier = kMultiplier};
    args.group_count = count.data(), args.group_starts = starts.data();
    args.group_tokens = group_tokens.data(), args.sorted_rows = sorted_rows.data();
    args.dx = dx.view(), args.d_table = d_table.view();
    args.dropout = cuda::MakeDeviceDropout(c.dropout, position.data());
    cuda::EmbeddingBackward(device.stream(), args);
    EXPECT_TRUE(d_table.guards_intact());
    return d_table.dense();
  }

  // One-token sentences, an empty one, and long ones; widths on both sides of a thread's eight columns and of a warp's.
  template <typename Check>
  static void ForEachCase(const Check& check) {
    for (const std::vector<int32_t>& offsets : {std::vector<int32_t>{0, 1}, {0, 1, 2, 9, 9, 40}, {0, 60}}) {
      for (const int64_t width : {1, 7, 8, 65, 264}) {
        for (const bool dropout : {false, true}) {
          SCOPED_TRACE(::testing::Message() << offsets.back() << " x " << width << ", dropout " << dropout);
          check(Case(offsets, width, dropout));
        }
      }
    }
  }
};
using AllTypes = ::testing::Types<Types<float, float>, Types<BFloat16, BFloat16>, Types<BFloat16, float>>;
TYPED_TEST_SUITE(CudaEmbeddingTest, AllTypes);

TYPED_TEST(CudaEmbeddingTest, ForwardMatchesTheReference) {
  this->ForEachCase([&](const auto& c) {
    const std::vector<float> x = this->Forward(c, {}, 1);
    EXPECT_TRUE(NearReference(x, c.reference.Forward(), kMultiplier, this->kRounds ? 0x1p16 : 4));
    EXPECT_TRUE(SameBits(x, this->Forward(c, {1, 3}, 2)));
  });
}

TYPED_TEST(CudaEmbeddingTest, BackwardAddsToWhatIsThere) {
  this->ForEachCase([&](const auto& c) {
    std::vector<double> expected = c.reference.Backward(Widen(c.dx));
    for (size_t i = 0; i < expected.size(); ++i) expected[i] += c.d_table[i];
    const std::vector<float> d_table = this->Backward(c, {}, 1);
    EXPECT_TRUE(NearReference(d_table, expected, kMultiplier * std::sqrt(c.rows), 8));
    EXPECT_TRUE(SameBits(d_table, this->Backward(c, {1, 3}, 2)));
  });
}

TYPED_TEST(CudaEmbeddingTest, PaddingRowsAreZeroAndHaveNoGradient) {
  typename TestFixture::Case c({0, 4, 20}, 16, true);
  for (const int64_t row : {0, 5, 19}) c.tokens[row] = -1;
  const std::vector<float> x = this->Forward(c, {}, 1);
  for (const int64_t row : {0, 5, 19}) {
    for (int64_t i = 0; i < 16; ++i) {
      EXPECT_EQ(x[row * 16 + i], 0.0f);
      c.dx[row * 16 + i] = NAN;
    }
  }
  for (const float value : this->Backward(c, {}, 1)) EXPECT_TRUE(std::isfinite(value));
}

TEST(CudaEmbeddingGroupsTest, SortsRowsByToken) {
  const cuda::TokenGroups groups = cuda::GroupRowsByToken({7, 3, -1, 7, 3, 0, 7});
  EXPECT_EQ(groups.tokens, (std::vector<int32_t>{0, 3, 7}));
  EXPECT_EQ(groups.starts, (std::vector<int32_t>{0, 1, 3, 6}));
  EXPECT_EQ(groups.sorted_rows, (std::vector<int32_t>{5, 1, 4, 0, 3, 6}));
  EXPECT_EQ(cuda::GroupRowsByToken({}).starts, std::vector<int32_t>{0});
}

}  // namespace
}  // namespace hadal::testing
