// Corpora of random sentences, for models that need not learn from them.
#pragma once

#include <optional>

#include "layers/model_options.h"
#include "runtime/data/corpus.h"
#include "runtime/data/input_masks.h"

namespace hadal::testing {

// Random sentence pairs of 1 … `longest` tokens.
Corpus RandomCorpus(int samples, int longest, int vocabulary, uint32_t seed);
// A corpus that fits a model: pairs if it has an encoder, else plain text; of speech up to 4 · `longest` frames.
Corpus RandomCorpusFor(const ModelOptions& model, int samples, int longest, uint32_t seed);
// The masks for an encoder alone; its mask token is the last id. Nothing for other models.
std::optional<TokenMasking> MaskingFor(const ModelOptions& model);

}  // namespace hadal::testing
