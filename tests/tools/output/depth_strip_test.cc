#include "tools/output/progress.h"

#include <cmath>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace hadal {
namespace {

DepthStripText Render(const std::vector<float>& norms, int encoder_sublayers, int columns, bool unicode = true) {
  DepthScale scale;
  scale.Follow(norms);
  return RenderDepthStrip({norms, encoder_sublayers, columns, unicode}, scale);
}

TEST(DepthStrip, HeightIsTheLogarithm) {
  std::vector<float> norms;
  for (int i = 0; i < 8; ++i) norms.push_back(std::pow(10.0f, i * 0.5f - 5.0f));
  const DepthStripText text = Render(norms, 4, 80);
  EXPECT_EQ(text.encoder, "▁▂▃▄");
  EXPECT_EQ(text.border, "│");
  EXPECT_EQ(text.decoder, "▅▆▇█");
  EXPECT_EQ(text.columns, 9);
  EXPECT_EQ(Render(norms, 4, 80, false).decoder, "=+*#");
}

TEST(DepthStrip, SharesColumnsByDepthAndNeverExceedsThem) {
  const DepthStripText text = Render(std::vector<float>(2500, 1.0f), 1000, 51);
  EXPECT_EQ(text.columns, 51);
  EXPECT_EQ(text.encoder.size(), 20u * 3);
  EXPECT_EQ(text.decoder.size(), 30u * 3);
  const DepthStripText lopsided = Render(std::vector<float>(2500, 1.0f), 1, 10);
  EXPECT_EQ(lopsided.encoder.size(), 1u * 3);
  EXPECT_EQ(lopsided.columns, 10);
}

TEST(DepthStrip, ColumnsAverageGeometrically) {
  // Columns: mean of 1e-4 and 1e0 = 1e-2, the middle of four decades; then both ends.
  const DepthStripText text = Render({1e-4f, 1.0f, 1e-4f, 1e-4f, 1.0f, 1.0f}, 0, 3);
  EXPECT_EQ(text.decoder, "▅▁█");
  EXPECT_EQ(text.border, "");
}

TEST(DepthStrip, ShowsZerosAndValuesThatAreNotFinite) {
  EXPECT_EQ(Render({0.0f, 1.0f, NAN, INFINITY}, 2, 80).encoder.substr(0, 2), "·");
  EXPECT_EQ(Render({0.0f, 1.0f, NAN, INFINITY}, 2, 80).decoder, "××");
  EXPECT_EQ(Render({}, 0, 80).columns, 0);
}

TEST(DepthScale, WidensAtOnceAndNarrowsSlowly) {
  DepthScale scale;
  EXPECT_FALSE(scale.known());
  scale.Follow(std::vector<float>{0.0f, NAN});
  EXPECT_FALSE(scale.known());
  scale.Follow(std::vector<float>{1e-6f, 1e-2f});
  EXPECT_NEAR(scale.low(), -6, 1e-6);
  EXPECT_NEAR(scale.high(), -2, 1e-6);
  scale.Follow(std::vector<float>{1e-8f, 1e-4f});
  EXPECT_NEAR(scale.low(), -8, 1e-6);
  EXPECT_NEAR(scale.high(), -2.1, 1e-6);
  scale.Follow(std::vector<float>{1e-6f, 1e-4f});
  EXPECT_NEAR(scale.low(), -7.9, 1e-6);
  EXPECT_NEAR(scale.high(), -2.195, 1e-6);
  scale.Follow(std::vector<float>{1e-6f, 1e1f});
  EXPECT_NEAR(scale.low(), -7.805, 1e-6);
  EXPECT_NEAR(scale.high(), 1, 1e-6);
}

TEST(DepthScale, SpansAtLeastADecade) {
  DepthScale scale;
  scale.Follow(std::vector<float>{1.0f});
  EXPECT_DOUBLE_EQ(scale.low(), -0.5);
  EXPECT_DOUBLE_EQ(scale.high(), 0.5);
}

}  // namespace
}  // namespace hadal
