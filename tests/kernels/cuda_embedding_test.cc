#include "kernels/cuda/embedding.h"

#include <cmath>
#include <type_traits>

#include "gtest/gtest.h"
#include "kernels/cuda/dropout.h"
#include "runtime/stream.h"
#include "tests/kernels/embedding_conformance.h"
#include "tests/support/kernel_device.h"
#include "tests/support/random_inputs.h"

namespace hadal::testing {
namespace {

using Case = EmbeddingCase;

struct Variation {
  uint64_t seed;
  Placement place;
};
constexpr Variation kVariations[] = {{1, {}}, {2, {1, 3}}};

template <typename Table, typename Stream>
std::vector<float> Forward(const Case& c, int variation) {
  const auto& [seed, place] = kVariations[variation];
  KernelDevice device(seed);
  DeviceVectorOf<int32_t> tokens(device, c.tokens), row_positions(device, c.RowPositions());
  DeviceMatrixOf<Table> table(device, c.table, Case::kVocabulary, c.width, place);
  DeviceMatrixOf<float> positions(device, c.positions, c.positions.empty() ? 0 : c.rows, c.width, place);
  DeviceMatrixOf<Stream> x(device, std::vector<float>(c.rows * c.width, NAN), c.rows, c.width, place);
  DeviceVectorOf<cuda::RandomPosition> position(device, {cuda::PositionOf(c.dropout)});
  EmbeddingForwardArgs args = {.table = table.view(), .multiplier = Case::kMultiplier};
  if (!c.positions.empty()) args.positions = positions.view();
  args.device_tokens = {.tokens = tokens.data(), .positions = row_positions.data()};
  args.dropout = c.dropout, args.dropout.device_position = position.data();
  args.x = x.view();
  cuda::EmbeddingForward(device.stream(), args);
  EXPECT_TRUE(x.guards_intact());
  return x.dense();
}

template <typename Stream>
std::vector<float> Backward(const Case& c, int variation) {
  const auto& [seed, place] = kVariations[variation];
  KernelDevice device(seed);
  const cuda::TokenGroups groups = cuda::GroupRowsByToken(c.tokens);
  DeviceVectorOf<int32_t> count(device, std::vector<int32_t>(1, groups.tokens.size())), starts(device, groups.starts);
  DeviceVectorOf<int32_t> group_tokens(device, groups.tokens), sorted_rows(device, groups.sorted_rows);
  DeviceMatrixOf<Stream> dx(device, c.dx, c.rows, c.width, place);
  DeviceMatrixOf<float> d_table(device, c.d_table, Case::kVocabulary, c.width, place);
  DeviceMatrixOf<float> d_positions(device, c.d_positions, c.rows, c.width, place);
  std::vector<int32_t> of_rows = c.RowPositions();
  for (int64_t r = 0; r < c.rows; ++r) {
    if (c.tokens[r] < 0) of_rows[r] = -1;  // padding
  }
  DeviceVectorOf<int32_t> row_positions(device, of_rows);
  DeviceVectorOf<cuda::RandomPosition> position(device, {cuda::PositionOf(c.dropout)});
  EmbeddingBackwardArgs args = {.tokens = {c.tokens.data(), c.rows}, .dx = dx.view(), .multiplier = Case::kMultiplier};
  args.device_tokens = {.positions = row_positions.data(),
                        .group_count = count.data(),
                        .group_starts = starts.data(),
                        .group_tokens = group_tokens.data(),
                        .sorted_rows = sorted_rows.data()};
  args.d_table = d_table.view(), args.d_positions = d_positions.view();
  args.dropout = c.dropout, args.dropout.device_position = position.data();
  cuda::EmbeddingBackward(device.stream(), args);
  EXPECT_TRUE(d_table.guards_intact() && d_positions.guards_intact());
  std::vector<float> gradients = d_table.dense();
  for (const float x : d_positions.dense()) gradients.push_back(x);
  return gradients;
}

template <typename Table, typename Stream>
EmbeddingBackend Backend(const char* name) {
  return {.name = name,
          .run_forward = Forward<Table, Stream>,
          .run_backward = Backward<Stream>,
          .variations = std::size(kVariations),
          .stored_table = Rounded<Table>,
          .stored_residual = Rounded<Stream>,
          .residual_roundoff = std::is_same_v<Stream, float> ? 0 : kBFloat16Roundoff};
}
const EmbeddingBackend kBackends[] = {Backend<float, float>("Float"), Backend<BFloat16, BFloat16>("BFloat16"),
                                      Backend<BFloat16, float>("BFloat16TableOfAFloatStream")};
INSTANTIATE_TEST_SUITE_P(Cuda, EmbeddingConformance, ::testing::ValuesIn(kBackends), BackendName());

// Only a device's batches have rows that are padding.
TEST(CudaEmbeddingTest, PaddingRowsAreZeroAndHaveNoGradient) {
  for (const EmbeddingBackend& backend : kBackends) {
    Case c = MakeEmbeddingCase(backend, {0, 4, 20}, 16, true);
    for (const int64_t row : {0, 5, 19}) c.tokens[row] = -1;
    const std::vector<float> x = backend.run_forward(c, 0);
    for (const int64_t row : {0, 5, 19}) {
      for (int64_t i = 0; i < 16; ++i) {
        EXPECT_EQ(x[row * 16 + i], 0.0f);
        c.dx[row * 16 + i] = NAN;
      }
    }
    for (const float value : backend.run_backward(c, 0)) EXPECT_TRUE(std::isfinite(value));
  }
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
