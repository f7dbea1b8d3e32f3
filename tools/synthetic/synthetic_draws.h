// The random numbers of one synthetic sentence: a function of (seed, index of the sentence) alone, in the order of the
// calls. Thread safety: none; each sentence has its own object.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/check.h"
#include "runtime/random.h"

namespace hadal {

class SyntheticDraws {
 public:
  SyntheticDraws(uint64_t seed, uint64_t index) : seed_(seed), index_(index) {}

  // A uniform number in [0, bound).  REQUIRES: bound > 0.
  uint32_t Below(uint32_t bound) {
    constexpr uint32_t kDomain = static_cast<uint32_t>(RandomSite::kSampling) | 1u << 3;
    const PhiloxCounter counter = {next_++, kDomain, static_cast<uint32_t>(index_),
                                   static_cast<uint32_t>(index_ >> 32)};
    return static_cast<uint32_t>(uint64_t{Philox4x32(seed_, counter)[0]} * bound >> 32);
  }
  bool Percent(uint32_t share) { return Below(100) < share; }

  // A row of the table for which `fits` returns true.  REQUIRES: there is one.
  template <typename T, typename Fits>
  const T* Pick(std::span<const T> table, Fits&& fits) {
    const auto count = static_cast<uint32_t>(std::count_if(table.begin(), table.end(), fits));
    HADAL_CHECK_GT(count, 0u);
    uint32_t left = Below(count);
    for (const T& row : table) {
      if (fits(row) && left-- == 0) return &row;
    }
    return nullptr;
  }

  // An index with probability weights[i] / sum.
  template <size_t kCount>
  size_t Weighted(const std::array<uint32_t, kCount>& weights) {
    uint32_t sum = 0;
    for (const uint32_t weight : weights) sum += weight;
    uint32_t left = Below(sum);
    for (size_t i = 0; i < kCount; ++i) {
      if (left < weights[i]) return i;
      left -= weights[i];
    }
    return kCount - 1;
  }

 private:
  uint64_t seed_;
  uint64_t index_;
  uint32_t next_ = 0;
};

}  // namespace hadal
