#include "tests/integration/nccl_run_cases.h"

#include "runtime/check.h"

namespace hadal::testing {
namespace {

RunSpec Pipeline(int ranks) {
  RunSpec spec = SmallNcclRun(ResidualMethod::kDeepNorm);
  spec.ranks = ranks;
  spec.pipeline.recompute_every = 2;
  spec.pipeline.decoder = {.beam = {.beam = 2, .max_length_b = 2}, .sentences = 2};
  spec.bleu_sentences = 2;
  spec.validate_every_step = true;
  return spec;
}

// Chunks of a rank share a link.
RunSpec Interleaved() {
  RunSpec spec = SmallNcclRun(ResidualMethod::kB2t);
  spec.ranks = 2;
  spec.pipeline.schedule = ScheduleKind::kInterleaved1F1B;
  spec.pipeline.chunks = 2;
  spec.pipeline.outstanding_sends = 1;
  return spec;
}

RunSpec Replicas(int ranks, bool sharded) {
  RunSpec spec = SmallNcclRun(ResidualMethod::kPreLn);
  spec.ranks = spec.pipeline.replicas = ranks;
  spec.batch.micro_batches = std::max(4, ranks);
  spec.pipeline.shard_optimizer_state = sharded;
  spec.steps = 1;
  return spec;
}

// With tied tables, whose users are on both stages.
RunSpec ReplicasOfAPipeline() {
  RunSpec spec = SmallNcclRun(ResidualMethod::kDeepNorm);
  spec.ranks = 4;
  spec.pipeline.replicas = 2;
  spec.pipeline.placement = Placement::kStagesTogether;
  spec.pipeline.overlap_weight_gradients = true;  // one more of a rank's 24 streams
  return spec;
}

// Borders in bf16; what replicas and users of a table receive is rounded for their products.
RunSpec Bf16(int ranks) {
  RunSpec spec = SmallNcclRun(ResidualMethod::kDeepNorm);
  spec.compute_storage = Storage::kBFloat16;
  spec.ranks = ranks;
  spec.pipeline.replicas = ranks / 2;
  return spec;
}

}  // namespace

RunSpec SmallNcclRun(ResidualMethod method) {
  RunSpec spec;
  spec.model = SmallModel(
      method, {.encoder_layers = 2, .decoder_layers = 2, .d_model = 16, .heads = 2, .vocabulary = kNcclRunVocabulary});
  spec.batch = {.micro_batches = 4, .source_tokens = 12, .target_tokens = 12};
  spec.optimizer.clip_norm = 0.5;
  spec.steps = 2;
  return spec;
}

std::vector<NcclRunCase> NcclRunCases(int ranks) {
  HADAL_CHECK(ranks == 2 || ranks == 4 || ranks == 8);
  std::vector<NcclRunCase> cases = {{"ShardedReplicas", Replicas(ranks, true)}, {"Bf16", Bf16(ranks)}};
  if (ranks == 8) return cases;
  cases.push_back({"Pipeline", Pipeline(ranks)});
  if (ranks == 2) {
    cases.push_back({"Interleaved", Interleaved()});
  } else {
    cases.push_back({"Replicas", Replicas(ranks, false)});
    cases.push_back({"ReplicasOfAPipeline", ReplicasOfAPipeline()});
  }
  return cases;
}

}  // namespace hadal::testing
