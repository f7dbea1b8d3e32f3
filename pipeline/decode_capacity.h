// What the buffers of decoding are sized for: how many sentences are translated together, and how much past they may keep.
//
// Memory is a pool of cache rows [k | v] a lane, one row a position and decoder layer: the encoder's memory of the group's
// sentences, and the path of every hypothesis. Common beginnings of hypotheses share their rows and rows of dead ones are
// used again, so a typical sentence of 25 tokens takes about 75 rows, though beam · (longest + 1) could be needed. A pool holds
// at least one sentence at its longest; more sentences run as long as they fit (decode_group.h puts back those that do not).
//   bytes a rank = lanes · cache_rows · 2 · d_model · (4, or 2 in bf16) · (decoder layers on the rank)
// A lane is a group of sentences under way; with as many lanes as ranks every stage has work. The same on every rank; rows and source rows
// are a function of the options and the model alone, so that a device's products have the same shapes for every number of ranks.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "layers/model_plan.h"
#include "pipeline/beam_search.h"
#include "pipeline/pipeline_plan.h"

namespace hadal {

struct DecoderOptions {
  BeamOptions beam;
  int64_t cache_limit_bytes = 0;  // of a rank's caches; 0: 512 MiB, or what one sentence needs where that is more
  int32_t longest_source = 512;   // longest source accepted, </s> counted; at most the model's positions
  int32_t sentences = 0;          // translated together a lane, at most; 0: as many as are efficient
  bool graphs = true;             // on a device a step and a group's encoding are launched as graphs: the same bits
};

struct DecodeCapacity {
  int32_t lanes = 1;
  int32_t sentences = 1;       // a group's
  int64_t rows = 0;            // of a step: sentences · beam, filled up; on a device every step has so many
  int64_t source_rows = 0;     // of a group's sources together, filled up; on a device every group has so many
  int64_t longest_source = 0;  // rows of one sentence, </s> counted
  int64_t longest_path = 0;    // positions of one hypothesis, the leading </s> counted
  int64_t cache_rows = 0;      // the pool of a lane; row 0 belongs to the rows that only fill a step up
};

// Bytes of one cache row on `rank`: over all decoder layers with attention there.
int64_t CacheRowBytes(const ModelPlan& plan, const PipelinePlan& pipeline, int rank);

// Errors: InvalidArgument (options); ResourceExhausted when one sentence does not fit cache_limit_bytes: with both numbers.
absl::StatusOr<DecodeCapacity> PlanDecodeCapacity(const ModelPlan& plan, const PipelinePlan& pipeline,
                                                  const DecoderOptions& options);

}  // namespace hadal
