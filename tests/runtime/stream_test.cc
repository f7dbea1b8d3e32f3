#include "runtime/stream.h"

#include <vector>

#include "gtest/gtest.h"

namespace hadal {
namespace {

TEST(StreamTest, RangesCoverEveryItemOnceInWholeGrains) {
  for (int threads : {1, 2, 3, 5}) {
    const Stream stream = Stream::Cpu(threads);
    for (int64_t items : {0, 1, 15, 16, 17, 33, 64, 100, 1000}) {
      int64_t next = 0;
      for (int t = 0; t < threads; ++t) {
        const auto [begin, end] = stream.Range(items, 16, t);
        if (begin == end) continue;
        EXPECT_EQ(begin, next);
        EXPECT_TRUE(end - begin >= 16 || items < 16);
        next = end;
      }
      EXPECT_EQ(next, items) << threads << " threads";
      std::vector<int> seen(items, 0);
      stream.ForRanges(items, 16, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) ++seen[i];
      });
      EXPECT_EQ(seen, std::vector<int>(items, 1));
    }
  }
}

}  // namespace
}  // namespace hadal
