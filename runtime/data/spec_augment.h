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
// Source: Park et al. 2019 (1904.08779). Thread safety: a pure function.
#pragma once

#include <cstdint>
#include <span>

namespace hadal {

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

}  // namespace hadal
