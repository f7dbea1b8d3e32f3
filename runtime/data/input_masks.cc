#include "runtime/data/input_masks.h"

#include <algorithm>
#include <array>
#include <utility>

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

// The share of all 32-bit draws that are below this.
uint64_t Threshold(double share) { return static_cast<uint64_t>(share * 0x1p32); }

int32_t RandomToken(const TokenMasking& masking, uint64_t draw) {
  auto token = static_cast<int32_t>(draw % (static_cast<uint64_t>(masking.vocabulary) - masking.special.size()));
  for (const int32_t special : masking.special) token += token >= special ? 1 : 0;
  return token;
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

void MaskTokens(const TokenMasking& masking, uint64_t seed, uint32_t epoch, PackedBatch& batch) {
  HADAL_CHECK(batch.source.empty());
  HADAL_CHECK_GT(masking.vocabulary, std::ssize(masking.special));
  batch.source = std::exchange(batch.target, {});
  batch.source_offsets = batch.target_offsets;
  batch.target_input.clear();
  const uint64_t masked_below = Threshold(masking.share), mask_below = Threshold(0.8), random_below = Threshold(0.9);
  int32_t first_row = 0;  // of the sample
  for (size_t n = 0; n < batch.samples.size(); ++n) {
    const RandomCounter counter{.seed = seed,
                                .step = epoch,
                                .micro_batch = static_cast<uint32_t>(batch.samples[n]),
                                .sublayer = 1,
                                .site = RandomSite::kSampling};
    // The documents of a block are one sample, whose rows are counted through.
    if (n == 0 || batch.samples[n] != batch.samples[n - 1]) first_row = batch.source_offsets[n];
    bool is_masked = false;
    for (int32_t row = batch.source_offsets[n]; row < batch.source_offsets[n + 1]; ++row) {
      const auto index = static_cast<size_t>(row);
      int32_t& token = batch.source[index];
      const std::array<uint32_t, 4> words = Philox4x32(seed, counter.At(static_cast<uint32_t>(row - first_row)));
      const bool continues = masking.whole_words && batch.continues[index] && row > batch.source_offsets[n];
      if (!continues) is_masked = words[0] < masked_below;
      if (!is_masked || std::ranges::binary_search(masking.special, token)) continue;
      batch.target_input.push_back(row);
      batch.target.push_back(token);
      if (masking.only_mask || words[1] < mask_below) {
        token = masking.mask_token;
      } else if (words[1] < random_below) {
        token = RandomToken(masking, static_cast<uint64_t>(words[3]) << 32 | words[2]);
      }
    }
    batch.target_offsets[n + 1] = static_cast<int32_t>(batch.target.size());
  }
}

}  // namespace hadal
