// Masks of what a model reads: SpecAugment in the frames of speech, and those of masked-language modelling in text.
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/data/packed_batch.h"

namespace hadal {

// SpecAugment masks blocks of filters and of time in the features of an utterance, for training.
//
// For an utterance of n frames of width ν, with features normalised to mean 0 (masked values become 0):
//   each of `frequency_masks`:  f from 0 … min(frequency_width, ν), f0 from 0 … ν − f; filters [f0, f0 + f), all frames
//   each of `time_masks`:       t from 0 … min(time_width, time_share · n), t0 from 0 … n − t; frames [t0, t0 + t)
// f, f0, t, t0 are uniform whole numbers, ends included. Time warping is left out (fairseq's default too).
// The paper's policies (F, mF, T, p, mT): LB 27, 1, 100, 1, 1; LD 27, 2, 100, 1, 2; SM 15, 2, 70, 0.2, 2;
// SS 27, 2, 70, 0.2, 2. Its frequency numbers are for 80 filters.
//
// The masks of a sentence are a function of (seed, step, micro-batch, place in the micro-batch): every layout and a
// resumed run get the same masks. Mask k of the sentence at place s reads words 0 (width) and 1 (beginning) of block
// s · 128 + k, frequency masks first; site kFrameMask (runtime/random.h).
// Source: Park et al. 2019 (1904.08779).
struct SpecAugment {
  static constexpr int32_t kMostMasks = 64;  // of each kind

  int32_t frequency_masks = 0;  // mF
  int32_t frequency_width = 0;  // F
  int32_t time_masks = 0;       // mT
  int32_t time_width = 0;       // T, frames
  double time_share = 1;        // p, of an utterance's frames

  bool active() const { return frequency_masks > 0 || time_masks > 0; }
};

// A sentence's place in training.
struct AugmentedSentence {
  uint64_t seed = 0;
  uint32_t step = 0;
  uint32_t micro_batch = 0;  // index in the step's list of all replicas' micro-batches
  uint32_t sentence = 0;     // place in the micro-batch, below 2^25
};

// `frames`: [n, width], masked in place.  REQUIRES: masks ≤ kMostMasks; width ≥ 1.
void ApplySpecAugment(const SpecAugment& policy, const AugmentedSentence& at, int32_t width, std::span<float> frames);

// The masks of masked-language modelling (Devlin et al. 2018, arXiv 1810.04805): a packed micro-batch of plain text
// becomes the batch of an encoder alone (layers/output_head.h).
//
//   source         = the tokens and </s>, in which a masked token is replaced
//   target_input   = the rows of the masked tokens in `source`
//   target         = the masked tokens as they were
//   target_offsets = of each sentence's masked tokens
// Each token is masked by itself with probability `share`; with `whole_words` each word is, all its tokens together.
// `only_mask`: all of them become the mask token; else 80% do, 10% become a random token and 10% stay, each token by
// itself. Special tokens are neither masked nor drawn.
//
// The masks are a function of (seed, epoch, sample, place of the token), so that batches and layouts change none. Token
// t of a sample reads words 0 (whether; of a whole word its first token's), 1 (by what) and 2, 3 (which random token)
// of block t; site kSampling (runtime/random.h), sublayer 1 (shuffles have 0), micro_batch = sample, step = epoch.
// Validation has seed 0 and epoch 0: the same masks in every run.
struct TokenMasking {
  double share = 0.15;  // 0: no token; the text only becomes a source
  bool only_mask = false;
  bool whole_words = false;
  int32_t mask_token = 0;
  int32_t vocabulary = 0;        // ids, the special ones among them
  std::vector<int32_t> special;  // ids, ascending; the mask token is one
};

// REQUIRES: the batch has no source; an ordinary token exists.
void MaskTokens(const TokenMasking& masking, uint64_t seed, uint32_t epoch, PackedBatch& batch);

}  // namespace hadal
