// The masks of masked-language modelling (Devlin et al. 2018, arXiv 1810.04805): a packed micro-batch of plain text
// becomes the batch of an encoder alone (layers/masked_head.h).
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
// of block t; site kSampling
// (runtime/random.h), sublayer 1 (shuffles have 0), micro_batch = sample, step = epoch. Validation has seed 0 and epoch
// 0: the same masks in every run.
// Thread safety: a pure function.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/data/packed_batch.h"

namespace hadal {

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
