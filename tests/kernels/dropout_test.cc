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

void TestedAttentionFill(const Dropout& dropout, uint64_t query_row, int64_t query_rows, uint32_t heads, uint32_t head,
                         int64_t keys, float* out) {
  FillAttentionDropoutFactors(dropout, query_row, query_rows, heads, head, keys, out);
}

int64_t TestedAttentionStride(int64_t keys) { return AttentionDropoutStride(keys); }
int64_t TestedSlack() { return kDropoutSlack; }

}  // namespace HWY_NAMESPACE
}  // namespace hadal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <vector>

#include "gtest/gtest.h"
#include "tests/support/each_instruction_set.h"

namespace hadal {

HWY_EXPORT(TestedFill);
HWY_EXPORT(TestedAttentionFill);
HWY_EXPORT(TestedAttentionStride);
HWY_EXPORT(TestedSlack);

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

void ExpectAttentionFill(uint64_t query_row, int64_t query_rows, uint32_t heads, uint32_t head, int64_t keys) {
  SCOPED_TRACE(::testing::Message() << query_rows << " query rows, head " << head << ", " << keys << " keys");
  const Dropout dropout = DropoutWith(0.2);
  const int64_t stride = HWY_DYNAMIC_DISPATCH(TestedAttentionStride)(keys);
  const int64_t capacity = query_rows * stride + HWY_DYNAMIC_DISPATCH(TestedSlack)();
  std::vector<float> out(capacity + 1, kUntouched);
  HWY_DYNAMIC_DISPATCH(TestedAttentionFill)(dropout, query_row, query_rows, heads, head, keys, out.data());
  ASSERT_EQ(out[capacity], kUntouched) << "wrote beyond the slack";
  for (int64_t i = 0; i < query_rows; ++i) {
    for (int64_t j = 0; j < keys; ++j) {
      ASSERT_EQ(out[i * stride + j], AttentionDropoutFactor(dropout, query_row + i, heads, head, j))
          << "query row " << query_row + i << ", key " << j;
    }
  }
}

TEST(FillAttentionDropoutFactorsTest, EqualsTheScalarDefinition) {
  testing::ForEachInstructionSet([] {
    for (const int64_t keys : {1, 5, 8, 9, 17, 24, 32, 33, 40, 63, 64, 65, 200, 1031}) {
      for (const int64_t query_rows : {1, 2, 3, 16, 17}) {
        ExpectAttentionFill(/*query_row=*/1021, query_rows, /*heads=*/8, /*head=*/3, keys);
      }
    }
    ExpectAttentionFill(0, 5, 1, 0, 12);
    ExpectAttentionFill(7, 3, 3, 2, 65000);
  });
}

}  // namespace
}  // namespace hadal

#endif  // HWY_ONCE
