// What the buffers of decoding are sized for: how many sentences are translated together, and how much past they may
// keep.
//
// Memory is a pool of cache rows [k | v] a lane, one row a position and decoder layer: the encoder's memory of the
// group's sentences, and the path of every hypothesis. Common beginnings of hypotheses share their rows and rows of
// dead ones are used again, so a typical sentence of 25 tokens takes about 75 rows, though beam · (longest + 1) could
// be needed. A pool holds at least one sentence at its longest; more sentences run as long as they fit (decode_group.h
// puts back those that do not).
//   bytes a rank = lanes · cache_rows · 2 · d_model · (4, or 2 in bf16) · (decoder layers on the rank)
// A lane is a group of sentences under way; with as many lanes as ranks every stage has work. The same on every rank;
// rows and source rows are a function of the options and the model alone, so that a device's products have the same
// shapes for every number of ranks.
#pragma once

#include "absl/status/statusor.h"
#include "layers/model_plan.h"
#include "pipeline/decode/decoder_options.h"
#include "pipeline/pipeline_plan.h"

namespace hadal {

// Bytes of one cache row on `rank`: over all decoder layers with attention there.
int64_t CacheRowBytes(const ModelPlan& plan, const PipelinePlan& pipeline, int rank);

// Errors: InvalidArgument (options); ResourceExhausted when one sentence does not fit cache_limit_bytes: with both
// numbers.
absl::StatusOr<DecodeCapacity> PlanDecodeCapacity(const ModelPlan& plan, const PipelinePlan& pipeline,
                                                  const DecoderOptions& options);

}  // namespace hadal
