// `hadal inspect similarity` computes how similar the outputs of a checkpoint's layers are, for each pair of layers.
//
//   hadal inspect similarity RUN_OR_DIR CORPUS [--tokens N] [--out STEM] [--threads N]
// Runs the first sentences of a prepared corpus that fit N tokens per side through the model, without dropout. The
// similarity of two layers of a stack is the mean, over the rows (tokens), of the cosine between their outputs. Writes
// the matrices to STEM.json; pyhadal draws them as STEM.html.
// Source: BranchNorm (arXiv 2305.02790), section 5: high similarity means that the depth is not used.
// Numerics: fp32 sums over all rows of normalised rows. One process; memory: layers × N × d_model floats per stack.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "pipeline/engine/engine.h"
#include "runtime/data/packed_batch.h"

namespace hadal {

struct LayerSimilarity {
  // [layers][layers], symmetric, 1 on the diagonal; empty without that stack.
  std::vector<std::vector<float>> encoder, decoder;
  int64_t source_rows = 0, target_rows = 0;  // number of rows averaged over
};

struct SimilarityMeans {
  double neighbours = 0;  // of the entries next to the diagonal
  double pairs = 0;       // of all entries off the diagonal
};
// Returns the means of one stack's matrix. REQUIRES: at least two layers.
SimilarityMeans MeansOf(const std::vector<std::vector<float>>& similarity);

// Measures the current weights of `engine` on `batch`, with the branch gain of `update` (1-based). Errors: those of
// Engine::Evaluate. REQUIRES: the engine has the whole model on one rank.
absl::StatusOr<LayerSimilarity> MeasureSimilarity(Engine& engine, const PackedBatch& batch, int64_t update);

}  // namespace hadal
