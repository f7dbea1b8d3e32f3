#include "tools/bench/bench_batch.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "runtime/random.h"

namespace hadal {
namespace {

// Rows of each sentence; they sum to `options.tokens`.
std::vector<int32_t> SentenceLengths(const BenchBatchOptions& options, int32_t micro_batch) {
  std::vector<int32_t> lengths;
  int32_t left = options.tokens;
  for (uint64_t i = 0; left > 0; ++i) {
    int32_t length = options.length;
    if (options.mixed_length) {
      const double u = UniformAt(/*seed=*/1, RandomSite::kSampling, micro_batch, i);
      length = 4 + static_cast<int32_t>(u * (2 * options.length - 7));
    }
    lengths.push_back(std::min(length, left));
    left -= lengths.back();
  }
  return lengths;
}

std::vector<int32_t> OffsetsOf(const std::vector<int32_t>& lengths) {
  std::vector<int32_t> offsets(lengths.size() + 1, 0);
  std::partial_sum(lengths.begin(), lengths.end(), offsets.begin() + 1);
  return offsets;
}

}  // namespace

PackedBatch RandomBatch(const BenchBatchOptions& options, int32_t micro_batch) {
  const auto tokens = [&](uint32_t stream) {
    std::vector<int32_t> row(options.tokens);
    for (size_t i = 0; i < row.size(); ++i) {
      const double u = UniformAt(/*seed=*/2, RandomSite::kSampling, 4 * micro_batch + stream, i);
      row[i] = kSpecialTokens + static_cast<int32_t>(u * (options.vocabulary - kSpecialTokens));
    }
    return row;
  };
  std::vector<int32_t> lengths = SentenceLengths(options, micro_batch);
  PackedBatch batch{.micro_batch = micro_batch,
                    .source = tokens(0),
                    .target_input = tokens(1),
                    .target = tokens(2),
                    .target_offsets = OffsetsOf(lengths)};
  std::reverse(lengths.begin(), lengths.end());  // so that pairs differ in length where lengths are mixed
  batch.source_offsets = OffsetsOf(lengths);
  batch.samples.resize(lengths.size());
  return batch;
}

}  // namespace hadal
