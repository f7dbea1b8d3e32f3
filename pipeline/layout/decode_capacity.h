// Plans the sizes of decoding's buffers: sentences that are translated together, and keys and values in the caches.
//
// A lane is a group of sentences in progress; with as many lanes as ranks, every stage has work. (The limit of memory
// may allow fewer.) Each lane has a pool of cache rows. A cache row holds the key and value [k | v] of one position in
// every decoder layer; the position is one of a sentence's encoder output, or one of a hypothesis. Hypotheses share the
// rows of a common prefix, and the rows of dropped hypotheses are reused, so a typical sentence of 25 tokens takes
// about 75 rows. A sentence takes at most its source rows + beam · longest_path, where longest_path counts the tokens
// of the longest translation and the leading </s>. A pool has room for at least one sentence of the largest size; more
// sentences run as long as they fit (decode_driver.h puts back those that do not).
//   bytes a rank = lanes · cache_rows · 2 · (heads of keys · their width) · (4, or 2 in bf16) · (its decoder layers)
// The capacity is the same on every rank. DecodeCapacity::rows (hypotheses in a decoding step) and source_rows (source
// rows of a lane, encoded together) depend on the options and the model alone, so that a device's products have the
// same shapes for every number of ranks.
#pragma once

#include "absl/status/statusor.h"
#include "layers/model_plan.h"
#include "pipeline/layout/pipeline_layout.h"
#include "pipeline/options/decoder_options.h"

namespace hadal {

// Returns the bytes of one cache row on `rank`, over all its decoder layers with attention.
int64_t CacheRowBytes(const ModelPlan& plan, const PipelineLayout& pipeline, int rank);

// Errors: InvalidArgument (options); ResourceExhausted, with the bytes needed and the limit, if the rows of one
// sentence exceed options.cache_limit_bytes.
absl::StatusOr<DecodeCapacity> MakeDecodeCapacity(const ModelPlan& plan, const PipelineLayout& pipeline,
                                                  const DecoderOptions& options);

}  // namespace hadal
