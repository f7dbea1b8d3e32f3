#include "kernels/cuda/attention.h"

#include <algorithm>
#include <cmath>

#include "gtest/gtest.h"
#include "kernels/cuda/tensor_attention.h"
#include "tests/kernels/attention_conformance.h"
#include "tests/support/kernel_device.h"
#include "tests/support/random_inputs.h"

namespace hadal::testing {
namespace {

// [columns, rows] of [rows, columns].
std::vector<float> Transposed(const std::vector<float>& values, int64_t columns) {
  if (values.empty()) return values;
  const int64_t rows = std::ssize(values) / columns;
  std::vector<float> result(values.size());
  for (int64_t i = 0; i < std::ssize(values); ++i) result[i % columns * rows + i / columns] = values[i];
  return result;
}

// Runs forward and backward as a layer with fused projections would; the tile lists have room for two more.
template <typename T>
void RunKernels(const AttentionProblem& problem, AttentionTensors& t, Placement place, uint64_t seed,
                int32_t most_blocks) {
  KernelDevice device(seed);
  const std::vector<int32_t> query_offsets = problem.QueryOffsets(), key_offsets = problem.KeyOffsets();
  const int64_t query_rows = query_offsets.back(), key_rows = key_offsets.back(), columns = problem.columns();
  const std::vector<float> blank(std::max(query_rows, key_rows) * columns, NAN);
  const auto of_queries = [&](const std::vector<float>& values) {
    return DeviceMatrixOf<T>(device, values, query_rows, columns, place);
  };
  const auto of_keys = [&](const std::vector<float>& values) {
    return DeviceMatrixOf<T>(device, values, key_rows, problem.key_columns(), place);
  };
  const auto q = of_queries(t.q), d_output = of_queries(t.d_output), output = of_queries(blank),
             d_q = of_queries(blank);
  const auto k = of_keys(t.k), v = of_keys(t.v), d_k = of_keys(blank), d_v = of_keys(blank);
  const std::vector<float> terms(query_rows * problem.heads * 2, NAN);
  const DeviceMatrixOf<float> log_sum_exp(device, terms, problem.heads, query_rows, place);
  const DeviceMatrixOf<float> row_terms(device, terms, 2 * problem.heads, query_rows, place);
  DeviceVectorOf<cuda::RandomPosition> position(device, {cuda::PositionOf(problem.dropout())});
  cuda::AttentionTiles tiles = cuda::CutIntoTiles(query_offsets, key_offsets);
  tiles.of_queries.resize(tiles.of_queries.size() + 2);
  tiles.of_keys.resize(tiles.of_keys.size() + 2);
  DeviceVectorOf<cuda::AttentionTile> query_tiles(device, tiles.of_queries), key_tiles(device, tiles.of_keys);
  const std::vector<float> angles = problem.Angles();
  const int64_t turned = 2 * problem.half;
  const DeviceMatrixOf<float> table(device, angles, turned == 0 ? 0 : std::ssize(angles) / turned, turned, {});
  const cuda::AttentionShape shape = {
      problem.heads,  static_cast<int32_t>(problem.head_width),
      problem.causal, most_blocks,
      problem.group,  turned == 0 ? cuda::DeviceRotary() : cuda::DeviceRotaryOf({ConstMatrix(table.view())}),
      problem.reach};
  Dropout placed = problem.dropout();
  placed.device_position = position.data();
  const cuda::DeviceDropout dropout = cuda::DeviceDropoutOf(placed);

  cuda::AttentionForwardArgs<T> forward = {.shape = shape, .dropout = dropout};
  forward.query_tiles = query_tiles.data(), forward.query_tile_capacity = tiles.of_queries.size();
  forward.q = q.view(), forward.k = k.view(), forward.v = v.view();
  forward.output = output.view(), forward.log_sum_exp = log_sum_exp.view();
  cuda::AttentionForward(device.stream(), forward);

  cuda::AttentionBackwardArgs<T> backward = {.shape = shape, .dropout = dropout};
  backward.query_tiles = query_tiles.data(), backward.query_tile_capacity = tiles.of_queries.size();
  backward.key_tiles = key_tiles.data(), backward.key_tile_capacity = tiles.of_keys.size();
  backward.q = q.view(), backward.k = k.view(), backward.v = v.view();
  backward.log_sum_exp = log_sum_exp.view(), backward.d_output = d_output.view();
  backward.d_q = d_q.view(), backward.d_k = d_k.view(), backward.d_v = d_v.view(),
  backward.row_terms = row_terms.view();
  cuda::AttentionBackward(device.stream(), backward);
  for (const auto* written : {&output, &d_q, &d_k, &d_v}) EXPECT_TRUE(written->guards_intact());
  EXPECT_TRUE(log_sum_exp.guards_intact() && row_terms.guards_intact());
  t.output = output.dense(), t.log_sum_exp = Transposed(log_sum_exp.dense(), query_rows);
  t.d_q = d_q.dense(), t.d_k = d_k.dense(), t.d_v = d_v.dense();
}

// The second way: off the boundaries, threads in another order, blocks that compute several tiles each.
template <typename T>
void RunVariation(const AttentionProblem& problem, AttentionTensors& tensors, int variation) {
  if (variation == 0) {
    RunKernels<T>(problem, tensors, {}, /*seed=*/1, cuda::AttentionShape().most_blocks);
  } else {
    RunKernels<T>(problem, tensors, {1, 2 * problem.columns() + 1}, /*seed=*/2, /*most_blocks=*/2 * problem.heads + 1);
  }
}

bool RoundsTurned(const AttentionProblem& problem) {
  return problem.half > 0 && cuda::OnTensorCores<BFloat16>(problem.head_width, problem.half);
}

// Heads of plain kernels and of those for tensor cores.
const AttentionBackend kBackends[] = {
    {.name = "Float", .run = RunVariation<float>, .variations = 2, .stored = Rounded<float>, .head_widths = {16, 32}},
    {.name = "BFloat16",
     .run = RunVariation<BFloat16>,
     .variations = 2,
     .stored = Rounded<BFloat16>,
     .multiple = kBFloat16Roundoff,
     .relative_error = 4e-3,
     .signed_error = 1e-4,
     .head_widths = {16, 32},
     .long_sentences = true,
     .rounds_turned = RoundsTurned}};
INSTANTIATE_TEST_SUITE_P(Cuda, AttentionConformance, ::testing::ValuesIn(kBackends), BackendName());

TEST(CudaAttentionDispatchTest, TensorCoresAreForBFloat16AndHeadsThatFitTheirTiles) {
  for (const int64_t width : {32, 64, 128}) {
    EXPECT_TRUE(cuda::OnTensorCores<BFloat16>(width));
    EXPECT_FALSE(cuda::OnTensorCores<float>(width));
  }
  for (const int64_t width : {1, 16, 24, 40, 96}) EXPECT_FALSE(cuda::OnTensorCores<BFloat16>(width));
}

TEST(CudaAttentionTilesTest, CutAtSentencesAndTileRows) {
  const cuda::AttentionTiles tiles = cuda::CutIntoTiles({0, 33, 33, 40}, {0, 5, 9, 9});
  ASSERT_EQ(tiles.of_queries.size(), 3);
  EXPECT_EQ(tiles.of_queries[1].first, 32);
  EXPECT_EQ(tiles.of_queries[1].rows, 1);
  EXPECT_EQ(tiles.of_queries[1].key_end, 5);
  EXPECT_EQ(tiles.of_queries[2].first, 33);
  EXPECT_EQ(tiles.of_queries[2].key_begin, 9);
  ASSERT_EQ(tiles.of_keys.size(), 2);
  EXPECT_EQ(tiles.of_keys[1].query_begin, 33);
  EXPECT_EQ(tiles.of_keys[1].query_end, 33);
}

}  // namespace
}  // namespace hadal::testing
