// Attention of one query a hypothesis over cached rows, for the CPU and for CUDA's kernel.
#pragma once

#include <algorithm>
#include <utility>

#include "tests/support/attention_reference.h"
#include "tests/support/random_inputs.h"
#include "tests/support/strided_matrix.h"

namespace hadal::testing {

// Hypotheses whose positions are scattered over the cache, some shared, as beam search leaves them.
struct CachedAttentionProblem {
  CachedAttentionProblem(std::vector<int32_t> lengths, int32_t heads, int64_t head_width)
      : lengths(std::move(lengths)), heads(heads), columns(heads * head_width) {
    for (const int32_t length : this->lengths) index_stride = std::max<int64_t>(index_stride, length + 2);
    index.assign(hypotheses() * index_stride, -1);  // -1: never to be read
    for (int64_t i = 0; i < hypotheses(); ++i) {
      for (int32_t p = 0; p < this->lengths[i]; ++p) index[i * index_stride + p] = (p * 37 + i / 2 * 11) % kCacheRows;
    }
    q = NormalValues(hypotheses() * columns, 1);
    cache = NormalValues(kCacheRows * 2 * columns, 2);
  }
  int64_t hypotheses() const { return static_cast<int64_t>(lengths.size()); }
  // The same by the full attention's reference: each hypothesis is a sentence of one query.
  std::vector<double> Reference() const {
    AttentionReferenceProblem reference = {
        .query_offsets = {0}, .key_offsets = {0}, .heads = heads, .head_width = columns / heads, .q = Widen(q)};
    for (int64_t i = 0; i < hypotheses(); ++i) {
      reference.query_offsets.push_back(static_cast<int32_t>(i + 1));
      reference.key_offsets.push_back(reference.key_offsets.back() + lengths[i]);
      for (int32_t p = 0; p < lengths[i]; ++p) {
        const float* row = &cache[index[i * index_stride + p] * 2 * columns];
        reference.k.insert(reference.k.end(), row, row + columns);
        reference.v.insert(reference.v.end(), row + columns, row + 2 * columns);
      }
    }
    return AttentionReference(reference).output;
  }

  static constexpr int64_t kCacheRows = 211;
  std::vector<int32_t> lengths;
  int32_t heads;
  int64_t columns;
  int64_t index_stride = 0;
  std::vector<int32_t> index;
  std::vector<float> q, cache;
};

}  // namespace hadal::testing
