#include "runtime/data/spec_augment.h"

#include <algorithm>
#include <array>

#include "runtime/check.h"
#include "runtime/random.h"

namespace hadal {
namespace {

struct Mask {
  int64_t begin, end;
};

// A number from 0 to `most` of 32 random bits: the high word of their product (Lemire 2019).
int64_t UpTo(int64_t most, uint32_t draw) {
  return static_cast<int64_t>((static_cast<uint64_t>(draw) * static_cast<uint64_t>(most + 1)) >> 32);
}

// A mask of at most `widest` of `size` places.
Mask MaskOf(const AugmentedSentence& at, int32_t number, int64_t widest, int64_t size) {
  const RandomCounter counter = {.step = at.step, .micro_batch = at.micro_batch, .site = RandomSite::kFrameMask};
  const uint32_t block = at.sentence * 2 * SpecAugment::kMostMasks + static_cast<uint32_t>(number);
  const std::array<uint32_t, 4> draws = Philox4x32(at.seed, counter.At(block));
  const int64_t width = UpTo(std::min(widest, size), draws[0]);
  const int64_t begin = UpTo(size - width, draws[1]);
  return {begin, begin + width};
}

}  // namespace

void ApplySpecAugment(const SpecAugment& policy, const AugmentedSentence& at, int32_t width, std::span<float> frames) {
  HADAL_CHECK_GE(width, 1);
  HADAL_CHECK_LE(std::max(policy.frequency_masks, policy.time_masks), SpecAugment::kMostMasks);
  const int64_t count = static_cast<int64_t>(frames.size()) / width;
  for (int32_t k = 0; k < policy.frequency_masks; ++k) {
    const Mask mask = MaskOf(at, k, policy.frequency_width, width);
    for (int64_t row = 0; row < count; ++row) {
      std::fill(frames.begin() + row * width + mask.begin, frames.begin() + row * width + mask.end, 0.0f);
    }
  }
  const auto share = static_cast<int64_t>(policy.time_share * static_cast<double>(count));
  for (int32_t k = 0; k < policy.time_masks; ++k) {
    const Mask mask = MaskOf(at, policy.frequency_masks + k, std::min<int64_t>(policy.time_width, share), count);
    std::fill(frames.begin() + mask.begin * width, frames.begin() + mask.end * width, 0.0f);
  }
}

}  // namespace hadal
