// Corpora of random sentences, for models that need not learn from them.
#pragma once

#include "layers/model_options.h"
#include "runtime/data/corpus.h"

namespace hadal::testing {

// Random sentence pairs of 1 … `longest` tokens.
Corpus RandomCorpus(int samples, int longest, int vocabulary, uint32_t seed);
// A corpus that fits a model: pairs if it has an encoder, else plain text; of speech up to 4 · `longest` frames.
Corpus RandomCorpusFor(const ModelOptions& model, int samples, int longest, uint32_t seed);

}  // namespace hadal::testing
