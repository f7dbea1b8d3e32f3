// Attention of one query a hypothesis over cached rows, for the CPU and for CUDA's kernel.
#pragma once

#include <algorithm>
#include <utility>

#include "kernels/attention_reach.h"
#include "kernels/rotary.h"
#include "tests/support/attention_reference.h"
#include "tests/support/random_inputs.h"
#include "tests/support/strided_matrix.h"

namespace hadal::testing {

// Hypotheses whose positions are scattered over the cache, some shared, as beam search leaves them.
struct CachedAttentionProblem {
  CachedAttentionProblem(std::vector<int32_t> lengths, int32_t heads, int64_t head_width, int32_t group = 1,
                         int64_t half = 0, int32_t reach = kWholeSentence)
      : lengths(std::move(lengths)), heads(heads), columns(heads * head_width), group(group), half(half), reach(reach) {
    for (const int32_t length : this->lengths) index_stride = std::max<int64_t>(index_stride, length + 2);
    index.assign(hypotheses() * index_stride, -1);  // -1: never to be read
    for (int64_t i = 0; i < hypotheses(); ++i) {
      for (int64_t p = FirstPosition(this->lengths[i], reach); p < this->lengths[i]; ++p) {
        index[i * index_stride + p] = static_cast<int32_t>((p * 37 + i / 2 * 11) % kCacheRows);
      }
    }
    q = NormalValues(hypotheses() * columns, 1);
    cache = NormalValues(kCacheRows * cache_columns(), 2);
    if (half == 0) return;
    angles.resize(index_stride * 2 * half);
    FillRotaryTable(10000, {angles.data(), index_stride, 2 * half});
  }
  int64_t hypotheses() const { return static_cast<int64_t>(lengths.size()); }
  int64_t cache_columns() const { return 2 * columns / group; }
  Rotary rotary() const { return half == 0 ? Rotary() : Rotary{{angles.data(), index_stride, 2 * half}}; }
  // Turns a query of position p as the kernels do.
  void Turn(int64_t p, double* query) const {
    for (int64_t c = 0; c < half; ++c) {
      const double low = query[c], high = query[c + half];
      const double cosine = angles[p * 2 * half + c], sine = angles[p * 2 * half + half + c];
      query[c] = low * cosine - high * sine, query[c + half] = high * cosine + low * sine;
    }
  }
  // The same by the full attention's reference: each hypothesis is a sentence of one query.
  std::vector<double> Reference() const {
    AttentionReferenceProblem reference = {
        .query_offsets = {0}, .key_offsets = {0}, .heads = heads, .head_width = columns / heads, .q = Widen(q)};
    reference.group = group;
    for (int64_t i = 0; i < hypotheses(); ++i) {
      for (int32_t h = 0; h < heads; ++h) Turn(lengths[i] - 1, &reference.q[i * columns + h * (columns / heads)]);
    }
    for (int64_t i = 0; i < hypotheses(); ++i) {
      reference.query_offsets.push_back(static_cast<int32_t>(i + 1));
      const int64_t first = FirstPosition(lengths[i], reach);
      reference.key_offsets.push_back(static_cast<int32_t>(reference.key_offsets.back() + lengths[i] - first));
      for (int64_t p = first; p < lengths[i]; ++p) {
        const float* row = &cache[index[i * index_stride + p] * cache_columns()];
        const float* const values = row + cache_columns() / 2;
        reference.k.insert(reference.k.end(), row, values);
        reference.v.insert(reference.v.end(), values, row + cache_columns());
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
  int32_t group;
  int64_t half;  // rotary positions; the cache's keys have turned already
  int32_t reach;
  std::vector<float> angles;
};

}  // namespace hadal::testing
