#include "pipeline/layout/decode_capacity.h"

#include <algorithm>

#include "layers/chunk_part.h"
#include "layers/incremental_sublayer.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

constexpr int64_t kDefaultCacheBytes = int64_t{512} << 20;
constexpr int64_t kMostSourceRows = 2048;  // of a group: beyond, the encoder's products gain nothing

// What the buffers are, but for lanes and cache rows.
absl::StatusOr<DecodeCapacity> Shapes(const ModelPlan& plan, const DecoderOptions& options) {
  HADAL_RETURN_IF_ERROR(ValidateBeamOptions(options.beam));
  if (options.longest_source < 2) {
    return InvalidArgumentError("longest source = ", options.longest_source, " is below 2");
  }
  if (options.sentences < 0) return InvalidArgumentError("sentences = ", options.sentences, " is below 0");
  const int64_t beam = options.beam.beam;
  const int64_t most_sentences = Workspace::DecodeRows(plan) / beam;
  DecodeCapacity capacity;
  capacity.sentences = static_cast<int32_t>(
      options.sentences == 0 ? most_sentences : std::min<int64_t>(options.sentences, most_sentences));
  capacity.rows = std::max(kFewestDecodeRows, capacity.sentences * beam);
  const int64_t longest_source = std::min(options.longest_source, plan.options.max_positions);
  capacity.longest_source = plan.options.has_encoder() ? longest_source : 1;
  const int64_t longest_source_rows = plan.options.has_encoder() ? longest_source : 0;
  capacity.longest_path = LongestTranslation(options.beam, longest_source_rows, plan.options.max_positions) + 1;
  capacity.source_rows = std::max({kFewestDecodeRows, capacity.longest_source,
                                   std::min(kMostSourceRows, capacity.sentences * capacity.longest_source)});
  return capacity;
}

}  // namespace

int64_t CacheRowBytes(const ModelPlan& plan, const PipelineLayout& pipeline, int rank) {
  int64_t layers = 0;
  for (int c = 0; c < pipeline.shape.chunks; ++c) {
    int32_t last_layer = -1;
    for (int32_t s = pipeline.first_sublayer(rank, c); s < pipeline.last_sublayer(rank, c); ++s) {
      const SublayerRecord& record = plan.sublayers[s];
      const bool attends = record.kind == SublayerKind::kSelfAttention || record.kind == SublayerKind::kCrossAttention;
      if (record.stack != Stack::kDecoder || !attends || record.layer == last_layer) continue;
      last_layer = record.layer;
      ++layers;
    }
  }
  return layers * 2 * plan.options.key_width() * BytesOf(plan.compute_storage);
}

absl::StatusOr<DecodeCapacity> MakeDecodeCapacity(const ModelPlan& plan, const PipelineLayout& pipeline,
                                                  const DecoderOptions& options) {
  HADAL_ASSIGN_OR_RETURN(DecodeCapacity capacity, Shapes(plan, options));
  int64_t row_bytes = 1;
  for (int r = 0; r < pipeline.shape.stages; ++r) row_bytes = std::max(row_bytes, CacheRowBytes(plan, pipeline, r));
  const int64_t paths = options.beam.beam * capacity.longest_path;
  const int64_t fewest = 1 + capacity.longest_source + paths;
  const int64_t most = 1 + capacity.source_rows + capacity.sentences * paths;
  const int64_t limit =
      options.cache_limit_bytes > 0 ? options.cache_limit_bytes : std::max(kDefaultCacheBytes, fewest * row_bytes);
  if (fewest * row_bytes > limit) {
    return ResourceExhaustedError("one sentence of up to ", capacity.longest_source, " source and ",
                                  capacity.longest_path, " target positions with a beam of ", options.beam.beam,
                                  " needs ", fewest * row_bytes, " bytes of caches on a rank, and the limit is ", limit,
                                  "; raise the limit, lower the beam or the longest lengths, or start more ranks");
  }
  capacity.lanes = static_cast<int32_t>(std::clamp<int64_t>(limit / (fewest * row_bytes), 1, pipeline.shape.stages));
  capacity.cache_rows = std::min(most, limit / (capacity.lanes * row_bytes));
  return capacity;
}

}  // namespace hadal
