#include "runtime/random.h"

#include <cmath>
#include <set>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/attention_dropout.h"

namespace hadal {
namespace {

// Known answers of Random123's kat_vectors for philox4x32-10.
TEST(PhiloxTest, KnownAnswers) {
  EXPECT_EQ(Philox4x32(0, {0, 0, 0, 0}), (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox4x32(~0ull, {~0u, ~0u, ~0u, ~0u}),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32(0x299f31d0a4093822ull, {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}),
            (std::array<uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

// Those of saved runs: masks, orders and initial weights after an upgrade are what they were.
TEST(PhiloxTest, CountersOfEachUse) {
  RandomCounter counter{.seed = 1, .step = 7, .micro_batch = 6, .sublayer = 5, .site = RandomSite::kAttention};
  EXPECT_EQ(counter.At(9, 2), (PhiloxCounter{9, 1u | 5u << 3 | 2u << 19, 6, 7}));
  counter.site = RandomSite::kSampling;
  EXPECT_EQ(counter.At(9), (PhiloxCounter{9, 7u | 5u << 3, 6, 7}));
  const std::array<uint32_t, 4> words = Philox4x32(5, {3, 6, 2, 1});
  const uint64_t index = (uint64_t{1} << 32) + 3;
  EXPECT_EQ(UniformAt(5, RandomSite::kInitialization, 2, index), words[0] * 0x1p-32);
  EXPECT_NEAR(NormalAt(5, RandomSite::kInitialization, 2, index),
              std::sqrt(-2 * std::log((words[0] + 0.5) * 0x1p-32)) * std::cos(2 * std::acos(-1.0) * words[1] * 0x1p-32),
              1e-12);
}

TEST(DropoutTest, KeepsTheStatedShareAndTheMean) {
  const Dropout dropout{{.seed = 7, .step = 3, .micro_batch = 1, .sublayer = 5}, Dropout::Threshold(0.3)};
  double sum = 0;
  int dropped = 0;
  const int n = 100000;
  for (int i = 0; i < n; ++i) {
    const float factor = DropoutFactor(dropout, i);
    sum += factor;
    dropped += factor == 0;
  }
  EXPECT_NEAR(dropped / double{n}, 0.3, 4 * std::sqrt(0.3 * 0.7 / n));
  EXPECT_NEAR(sum / n, 1.0, 0.01);
  EXPECT_EQ(dropout.threshold, 19661u) << "19660.8, rounded";
}

// What kernels and checkpoints of any layout agree on: eight draws of 16 bits a block, low half first; a draw below the
// threshold drops.
TEST(DropoutTest, AnElementsDrawIsItsPieceOfItsBlock) {
  Dropout dropout{{.seed = 7, .step = 3, .micro_batch = 1, .sublayer = 5}};
  for (uint64_t element = 0; element < 40; ++element) {
    const uint32_t block = static_cast<uint32_t>(element) / 8, piece = element % 8;
    const uint32_t word = Philox4x32(7, dropout.counter.At(block))[piece / 2];
    const uint32_t draw = piece % 2 == 0 ? word & 0xFFFF : word >> 16;
    dropout.threshold = draw;
    EXPECT_EQ(DropoutFactor(dropout, element), draw == 0 ? 1.0f : dropout.scale()) << element;
    dropout.threshold = draw + 1;
    EXPECT_EQ(DropoutFactor(dropout, element), 0.0f) << element;
  }
}

TEST(DropoutTest, NoTwoQueriesAndHeadsShareTheirDraws) {
  const Dropout dropout{{.seed = 7}, Dropout::Threshold(0.5)};
  constexpr uint32_t kHeads = 3, kKeys = 40;
  std::set<std::vector<float>> masks;
  for (uint64_t row = 0; row < 4; ++row) {
    for (uint32_t head = 0; head < kHeads; ++head) {
      std::vector<float> mask;
      for (uint32_t key = 0; key < kKeys; ++key)
        mask.push_back(AttentionDropoutFactor(dropout, row, kHeads, head, key));
      masks.insert(mask);
    }
  }
  EXPECT_EQ(masks.size(), 4u * kHeads);
}

TEST(UniformTest, LargeTensorsDoNotRepeat) {
  constexpr uint64_t kFar = uint64_t{1} << 32;
  for (uint64_t i = 0; i < 4; ++i) {
    EXPECT_NE(UniformAt(1, RandomSite::kInitialization, 2, i), UniformAt(1, RandomSite::kInitialization, 2, i + kFar));
    EXPECT_NE(NormalAt(1, RandomSite::kInitialization, 2, i), NormalAt(1, RandomSite::kInitialization, 2, i + kFar));
  }
}

TEST(DropoutTest, SitesStepsAndSublayersDiffer) {
  const Dropout base{{.seed = 7}, Dropout::Threshold(0.5)};
  auto differs = [&](auto change) {
    Dropout other = base;
    change(other.counter);
    for (int i = 0; i < 64; ++i) {
      if (DropoutFactor(base, i) != DropoutFactor(other, i)) return true;
    }
    return false;
  };
  EXPECT_TRUE(differs([](RandomCounter& c) { c.step = 1; }));
  EXPECT_TRUE(differs([](RandomCounter& c) { c.micro_batch = 1; }));
  EXPECT_TRUE(differs([](RandomCounter& c) { c.sublayer = 1; }));
  EXPECT_TRUE(differs([](RandomCounter& c) { c.site = RandomSite::kActivation; }));
  EXPECT_TRUE(differs([](RandomCounter& c) { c.seed = 8; }));
}

}  // namespace
}  // namespace hadal
