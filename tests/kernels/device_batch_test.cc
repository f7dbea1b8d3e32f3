#include "kernels/device_batch.h"

#include <algorithm>

#include "gmock/gmock.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/unfold.h"
#include "kernels/cuda_host/operations.h"

namespace hadal::testing {
namespace {

using ::testing::ElementsAre;

template <typename T>
std::vector<T> Values(const T* place, int64_t count) {
  return {place, place + count};
}
ConstTokens View(const std::vector<int32_t>& tokens) { return {tokens.data(), static_cast<int64_t>(tokens.size())}; }

// Sentence pairs of 2 and 3 source rows, 40 and 1 target rows; a padding row behind the source, four behind the target.
class DeviceBatchTest : public ::testing::Test {
 protected:
  DeviceBatchTest() : target_input_(45, 7), target_(45, 8) {
    std::fill(target_input_.begin() + 41, target_input_.end(), -1);
    std::fill(target_.begin() + 41, target_.end(), -1);
    content_ = {.random = {.seed_low = 1, .seed_high = 2, .micro_batch = 3, .step = 4},
                .gradient_scale = 0.25f,
                .branch_gains = {gains_.data(), 2},
                .first_sublayer = 5,
                .source = View(source_),
                .target_input = View(target_input_),
                .target = View(target_),
                .source_offsets = View(source_offsets_),
                .target_offsets = View(target_offsets_)};
    shape_ = ShapeOf(content_);
    block_.resize(BatchBytes(shape_) / sizeof(std::max_align_t) + 1);
    const auto bytes = reinterpret_cast<std::byte*>(block_.data());
    cuda::WriteBatch(content_, shape_, bytes);
    device_batch_ = DeviceBatchIn(shape_, 5, bytes);
  }

  // (first, rows, query begin and end, key begin and end) of the tiles that are not empty; those behind them must be.
  static std::vector<std::vector<int32_t>> Tiles(const cuda::AttentionTile* place, int64_t capacity) {
    std::vector<std::vector<int32_t>> tiles;
    bool ended = false;
    for (const cuda::AttentionTile& t : Values(place, capacity)) {
      EXPECT_FALSE(ended && t.rows > 0);
      ended = t.rows == 0;
      if (!ended) tiles.push_back({t.first, t.rows, t.query_begin, t.query_end, t.key_begin, t.key_end});
    }
    return tiles;
  }

  const std::vector<int32_t> source_ = {9, 5, 9, 9, 4, -1}, source_offsets_ = {0, 2, 5};
  std::vector<int32_t> target_input_, target_;
  const std::vector<int32_t> target_offsets_ = {0, 40, 41};
  const std::vector<float> gains_ = {0.5f, 2.0f};
  BatchContent content_;
  DeviceBatchShape shape_;
  std::vector<std::max_align_t> block_;
  DeviceBatch device_batch_;
};

TEST_F(DeviceBatchTest, ScalarsAndTokensLieAtTheirPlaces) {
  EXPECT_EQ(device_batch_.random->seed_high, 2u);
  EXPECT_EQ(device_batch_.random->step, 4u);
  EXPECT_EQ(*device_batch_.gradient_scale, 0.25f);
  EXPECT_THAT(Values(device_batch_.branch_gains, 2), ElementsAre(0.5f, 2.0f));
  EXPECT_EQ(device_batch_.first_sublayer, 5);
  EXPECT_EQ(Values(device_batch_.source.tokens, 6), source_);
  EXPECT_THAT(Values(device_batch_.source.positions, 6), ElementsAre(0, 1, 0, 1, 2, -1));
  EXPECT_EQ(Values(device_batch_.target.tokens, 45), target_input_);
  EXPECT_EQ(Values(device_batch_.targets, 45), target_);
}

TEST_F(DeviceBatchTest, RowsAreGroupedByToken) {
  ASSERT_EQ(*device_batch_.source.group_count, 3);
  EXPECT_THAT(Values(device_batch_.source.group_tokens, 3), ElementsAre(4, 5, 9));
  EXPECT_THAT(Values(device_batch_.source.group_starts, 4), ElementsAre(0, 1, 2, 5));
  EXPECT_THAT(Values(device_batch_.source.sorted_rows, 5), ElementsAre(4, 1, 0, 2, 3));
  EXPECT_EQ(*device_batch_.target.group_count, 1) << "padding rows are in no group";
}

TEST_F(DeviceBatchTest, SentencesAreCutIntoTilesAndPaddingSeesOnlyItself) {
  using Tile = std::vector<int32_t>;
  for (const cuda::AttentionTile* self : {device_batch_.source_self.queries, device_batch_.source_self.keys}) {
    EXPECT_THAT(Tiles(self, shape_.source_tiles),
                ElementsAre(Tile{0, 2, 0, 2, 0, 2}, Tile{2, 3, 2, 5, 2, 5}, Tile{5, 1, 5, 6, 5, 6}));
  }
  EXPECT_THAT(Tiles(device_batch_.target_self.queries, shape_.target_tiles),
              ElementsAre(Tile{0, 32, 0, 40, 0, 40}, Tile{32, 8, 0, 40, 0, 40}, Tile{40, 1, 40, 41, 40, 41},
                          Tile{41, 4, 41, 45, 41, 45}));
  EXPECT_THAT(Tiles(device_batch_.cross.queries, shape_.target_tiles),
              ElementsAre(Tile{0, 32, 0, 40, 0, 2}, Tile{32, 8, 0, 40, 0, 2}, Tile{40, 1, 40, 41, 2, 5},
                          Tile{41, 4, 41, 45, 5, 5}));
  EXPECT_THAT(Tiles(device_batch_.cross.keys, shape_.source_tiles),
              ElementsAre(Tile{0, 2, 0, 40, 0, 2}, Tile{2, 3, 40, 41, 2, 5}, Tile{5, 1, 45, 45, 5, 6}));
}

TEST_F(DeviceBatchTest, ShapesHaveTwoTileCapacities) {
  EXPECT_EQ(shape_.source_rows, 6);
  EXPECT_EQ(shape_.source_tiles, 6) << "three tiles are more than a quarter of the rows";
  EXPECT_EQ(shape_.target_tiles, 12) << "a quarter of 45 rows";
  EXPECT_EQ(shape_.branch_gains, 2);
  EXPECT_GE(BatchBytes(LargestShape(6, 45, 2)), BatchBytes(shape_));
}

TEST_F(DeviceBatchTest, PlainTextHasNoSource) {
  content_.source = content_.source_offsets = {};
  const DeviceBatchShape shape = ShapeOf(content_);
  EXPECT_EQ(shape.source_rows, 0);
  std::vector<std::max_align_t> block(BatchBytes(shape) / sizeof(std::max_align_t) + 1);
  cuda::WriteBatch(content_, shape, reinterpret_cast<std::byte*>(block.data()));
  const DeviceBatch device_batch = DeviceBatchIn(shape, 5, reinterpret_cast<std::byte*>(block.data()));
  EXPECT_EQ(Tiles(device_batch.target_self.queries, shape.target_tiles).size(), 4u);
  EXPECT_TRUE(Tiles(device_batch.cross.queries, shape.target_tiles).empty());
}

// Utterances of 5 and 9 frames, which are 3 and 5 inner rows.
TEST_F(DeviceBatchTest, SpeechHasFramesAndTheTapsOfBothConvolutions) {
  std::vector<float> frames(14 * 3);
  for (size_t i = 0; i < frames.size(); ++i) frames[i] = static_cast<float>(i);
  const std::vector<int32_t> frame_offsets = {0, 5, 14};
  content_.frames = {frames.data(), 14, 3};
  content_.frame_offsets = View(frame_offsets);
  const DeviceBatchShape shape = ShapeOf(content_);
  EXPECT_EQ(BatchBytes(shape), BatchBytes(LargestShape(6, shape.target_rows, 2, 3)) -
                                   (BatchBytes(LargestShape(6, shape.target_rows, 2)) - BatchBytes(shape_)));
  std::vector<std::max_align_t> block(BatchBytes(shape) / sizeof(std::max_align_t) + 1);
  cuda::WriteBatch(content_, shape, reinterpret_cast<std::byte*>(block.data()));
  const DeviceBatch device_batch = DeviceBatchIn(shape, 5, reinterpret_cast<std::byte*>(block.data()));
  EXPECT_EQ(Values(device_batch.speech.frames, 14 * 3), frames);
  const auto taps = [](const DeviceTaps& of) {
    std::vector<std::vector<int32_t>> rows;
    for (const cuda::RowTaps& row : Values(of.taps, of.rows)) rows.push_back({row.first, row.begin, row.end});
    return rows;
  };
  using Taps = std::vector<int32_t>;
  const Taps none = {0, 0, 0};
  EXPECT_THAT(taps(device_batch.speech.inner),
              ElementsAre(Taps{-2, 2, 5}, Taps{0, 0, 5}, Taps{2, 0, 3}, Taps{3, 2, 5}, Taps{5, 0, 5}, Taps{7, 0, 5},
                          Taps{9, 0, 5}, Taps{11, 0, 3}, none, none, none, none));
  EXPECT_THAT(taps(device_batch.speech.outer),
              ElementsAre(Taps{-2, 2, 5}, Taps{0, 0, 3}, Taps{1, 2, 5}, Taps{3, 0, 5}, Taps{5, 0, 3}, none));
  EXPECT_THAT(Values(device_batch.source.tokens, 6), ElementsAre(0, 1, 2, 3, 4, -1)) << "rows look themselves up";
}

}  // namespace
}  // namespace hadal::testing
