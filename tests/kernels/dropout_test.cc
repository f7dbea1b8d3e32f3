#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/kernels/dropout_test.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, as Highway asks.
#include "kernels/cpu/dropout-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hadal {
namespace HWY_NAMESPACE {

int64_t TestedFill(const Dropout& dropout, uint64_t first, int64_t count, float* buffer) {
  return FillDropoutFactors(dropout, first, count, buffer) - buffer;
}

int64_t TestedSlack() { return kDropoutSlack; }

// Walks rows [begin, end) of a tensor of `width` columns in pieces, as the kernels do, and gathers the factors.
void TestedWindow(const Dropout& dropout, int64_t begin, int64_t end, int64_t width, float* out) {
  DropoutWindow window(dropout, end * width);
  for (int64_t row = begin; row < end; ++row) {
    for (int64_t first = 0; first < width; first += DropoutWindow::kCapacity) {
      const int64_t count = std::min(DropoutWindow::kCapacity, width - first);
      out = std::copy_n(window.Get(row * width + first, count), count, out);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hadal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include "gtest/gtest.h"
#include "tests/support/each_instruction_set.h"

namespace hadal {

HWY_EXPORT(TestedFill);
HWY_EXPORT(TestedSlack);
HWY_EXPORT(TestedWindow);

namespace {

constexpr float kUntouched = -7.0f;

Dropout DropoutWith(double p) {
  return {{.seed = 0x123456789ABCDEF0, .step = 9, .micro_batch = 4, .sublayer = 2499, .site = RandomSite::kAttention},
          Dropout::Threshold(p)};
}

void ExpectFill(const Dropout& dropout, uint64_t first, int64_t count) {
  SCOPED_TRACE(::testing::Message() << "first " << first << ", count " << count);
  const int64_t capacity = count + HWY_DYNAMIC_DISPATCH(TestedSlack)();
  std::vector<float> buffer(capacity + 1, kUntouched);
  const int64_t start = HWY_DYNAMIC_DISPATCH(TestedFill)(dropout, first, count, buffer.data());
  ASSERT_EQ(buffer[capacity], kUntouched) << "wrote beyond the slack";
  for (int64_t i = 0; i < count; ++i) {
    ASSERT_EQ(buffer[start + i], DropoutFactor(dropout, first + i)) << "element " << first + i;
  }
}

TEST(FillDropoutFactorsTest, EqualsTheScalarDefinition) {
  testing::ForEachInstructionSet([] {
    for (const int64_t count : {1, 3, 7, 8, 9, 31, 63, 64, 65, 100, 512, 513}) {
      for (const uint64_t first : {0ull, 1ull, 7ull, 8ull, 13ull, 64ull, 1000003ull, (1ull << 35) - 300}) {
        ExpectFill(DropoutWith(0.1), first, count);
      }
    }
  });
}

TEST(FillDropoutFactorsTest, HandlesExtremeThresholds) {
  testing::ForEachInstructionSet([] {
    ExpectFill({DropoutWith(0).counter, 1}, 5, 300);
    ExpectFill({DropoutWith(0).counter, 32768}, 5, 300);
    ExpectFill({DropoutWith(0).counter, 65535}, 5, 300);
  });
}

TEST(DropoutWindowTest, EqualsTheScalarDefinition) {
  testing::ForEachInstructionSet([] {
    const Dropout dropout = DropoutWith(0.5);
    for (const int64_t width : {1, 3, 64, 65, 1000, 1024, 1025, 2500}) {
      const int64_t begin = 3, end = begin + 2 + 3000 / width;
      std::vector<float> factors((end - begin) * width);
      HWY_DYNAMIC_DISPATCH(TestedWindow)(dropout, begin, end, width, factors.data());
      for (size_t i = 0; i < factors.size(); ++i) {
        ASSERT_EQ(factors[i], DropoutFactor(dropout, begin * width + i)) << "width " << width << ", element " << i;
      }
    }
  });
}

}  // namespace
}  // namespace hadal

#endif  // HWY_ONCE
