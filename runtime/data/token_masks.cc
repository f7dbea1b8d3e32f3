#include "runtime/data/token_masks.h"

#include <array>
#include <utility>

#include "runtime/check.h"
#include "runtime/random.h"

namespace hadal {
namespace {

// The share of all 32-bit draws that are below this.
uint64_t Threshold(double share) { return static_cast<uint64_t>(share * 0x1p32); }

bool IsSpecial(const TokenMasking& masking, int32_t token) {
  return token < kSpecialTokens || token == masking.mask_token;
}

int32_t RandomToken(const TokenMasking& masking, uint64_t draw) {
  const bool among = masking.mask_token >= kSpecialTokens;
  const int32_t ordinary = masking.vocabulary - kSpecialTokens - (among ? 1 : 0);
  const auto token = static_cast<int32_t>(kSpecialTokens + draw % static_cast<uint64_t>(ordinary));
  return among && token >= masking.mask_token ? token + 1 : token;
}

}  // namespace

void MaskTokens(const TokenMasking& masking, uint64_t seed, uint32_t epoch, PackedBatch& batch) {
  HADAL_CHECK(batch.source.empty());
  HADAL_CHECK_GT(masking.vocabulary, kSpecialTokens + 1);
  batch.source = std::exchange(batch.target, {});
  batch.source_offsets = batch.target_offsets;
  batch.target_input.clear();
  const uint64_t masked_below = Threshold(masking.share), mask_below = Threshold(0.8), random_below = Threshold(0.9);
  for (size_t n = 0; n < batch.samples.size(); ++n) {
    const RandomCounter counter{.seed = seed,
                                .step = epoch,
                                .micro_batch = static_cast<uint32_t>(batch.samples[n]),
                                .sublayer = 1,
                                .site = RandomSite::kSampling};
    for (int32_t row = batch.source_offsets[n]; row < batch.source_offsets[n + 1]; ++row) {
      int32_t& token = batch.source[static_cast<size_t>(row)];
      if (IsSpecial(masking, token)) continue;
      const std::array<uint32_t, 4> words =
          Philox4x32(seed, counter.At(static_cast<uint32_t>(row - batch.source_offsets[n])));
      if (words[0] >= masked_below) continue;
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
