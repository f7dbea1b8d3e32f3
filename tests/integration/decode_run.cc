#include "tests/integration/decode_run.h"

#include <atomic>
#include <cstring>

#include "gtest/gtest.h"
#include "layers/parameter_store.h"
#include "pipeline/engine/engine.h"
#include "pipeline/exchange/parameter_broadcast.h"
#include "pipeline/layout/pipeline_layout.h"
#include "runtime/comm/in_process_communicator.h"
#include "runtime/comm/message_tags.h"
#include "runtime/compute_thread.h"
#include "runtime/data/corpus.h"
#include "runtime/data/packed_batch.h"
#include "runtime/random.h"
#include "runtime/status_macros.h"
#include "tests/support/counting_communicator.h"
#include "tests/support/moved_parameters.h"

namespace hadal::testing {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(60);

struct Shared {
  const DecodeSpec& spec;
  const std::vector<std::vector<int32_t>>& sources;
  bool evaluate;
  ModelPlan plan;
  PipelineLayout pipeline;
  std::mutex mutex;
  DecodeOutcome outcome;
  std::atomic<int64_t> residual_bytes = 0;
};

// The nll of every target row, by the training forward.
absl::Status Evaluate(Shared& shared, Engine& engine, const std::vector<Translation>& translations, bool has_head) {
  std::vector<SampleView> samples;
  for (size_t s = 0; s < shared.sources.size(); ++s) {
    samples.push_back({.source = shared.sources[s],
                       .target = translations[s].front().tokens,
                       .has_source = shared.plan.options.has_encoder()});
  }
  const int64_t most_rows = shared.spec.batch_rows;
  HADAL_ASSIGN_OR_RETURN(const std::vector<PackedBatch> batches, PackSentences(samples, {most_rows, most_rows}));
  std::vector<float> rows;
  HADAL_RETURN_IF_ERROR(engine.Evaluate(batches, {.update = shared.spec.update, .training = false}, &rows).status());
  if (!has_head) return absl::OkStatus();
  const float* row = rows.data();
  for (const SampleView& sample : samples) {
    shared.outcome.evaluated.emplace_back(row, row + sample.target.size() + 1);
    row += sample.target.size() + 1;
  }
  return absl::OkStatus();
}

absl::Status RunRank(Shared& shared, Communicator& communicator) {
  PrepareComputeThread();
  const DecodeSpec& spec = shared.spec;
  const std::unique_ptr<Device> device = spec.make_device ? spec.make_device(communicator.rank()) : nullptr;
  const Stream stream = device != nullptr ? Stream::On(*device, spec.threads) : Stream::Cpu(spec.threads);
  HADAL_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, Engine::Create({.plan = shared.plan,
                                                                               .pipeline = shared.pipeline,
                                                                               .stream = stream,
                                                                               .purpose = Purpose::kInference,
                                                                               .world = communicator,
                                                                               .timeout = kTimeout}));
  const ParameterStore& parameters = engine->stage().parameters();
  HADAL_RETURN_IF_ERROR(InitializeParameters(shared.pipeline, parameters, spec.seed, stream, communicator, kTimeout));
  if (spec.moved) MoveParametersOffTheirStart(parameters, spec.seed);
  HADAL_RETURN_IF_ERROR(engine->DistributeWeights());
  CountingCommunicator counting(communicator, 0, kFirstMessageTag, shared.residual_bytes);
  HADAL_ASSIGN_OR_RETURN(
      const std::unique_ptr<Decoder> decoder,
      Decoder::Create(shared.plan, shared.pipeline, parameters, stream, counting, spec.decoder, kTimeout));
  std::vector<Translation> translations;
  if (int64_t steps = spec.stop_after_steps; steps > 0) {
    const auto stop = [&] { return --steps <= 0; };
    HADAL_ASSIGN_OR_RETURN(translations, decoder->Translate(shared.sources, spec.update, spec.starts, {}, stop));
    EXPECT_TRUE(std::ranges::any_of(translations, &Translation::empty)) << "on rank " << communicator.rank();
  }
  int64_t launches = 0;
  for (int i = 0; i < spec.times; ++i) {
    const int64_t before = device == nullptr ? 0 : device->launches();
    HADAL_ASSIGN_OR_RETURN(translations, decoder->Translate(shared.sources, spec.update + i, spec.starts));
    if (device != nullptr) launches = device->launches() - before;
  }
  const int head = shared.pipeline.RankOfSublayer(shared.plan.output_head());
  if (shared.evaluate) {
    HADAL_RETURN_IF_ERROR(Evaluate(shared, *engine, translations, communicator.rank() == head));
  }
  const std::lock_guard lock(shared.mutex);
  shared.outcome.bytes[communicator.rank()] = decoder->bytes();
  shared.outcome.launches[communicator.rank()] = launches;
  shared.outcome.capacity = decoder->capacity();
  if (shared.outcome.translations.empty()) shared.outcome.translations = translations;
  EXPECT_EQ(FirstDifference(shared.outcome.translations, translations), "") << "on rank " << communicator.rank();
  return absl::OkStatus();
}

bool SameBits(const void* a, const void* b, size_t bytes) { return std::memcmp(a, b, bytes) == 0; }

}  // namespace

std::vector<std::vector<int32_t>> RandomSources(int count, int longest, int vocabulary, uint32_t seed) {
  uint64_t next = 0;
  const auto draw = [&](int n) { return static_cast<int32_t>(UniformAt(seed, RandomSite::kSampling, 98, next++) * n); };
  std::vector<std::vector<int32_t>> sources(count);
  for (std::vector<int32_t>& source : sources) {
    source.resize(1 + draw(longest));
    for (int32_t& token : source) token = kSpecialTokens + draw(vocabulary - kSpecialTokens);
  }
  return sources;
}

DecodeOutcome Decode(const DecodeSpec& spec, const std::vector<std::vector<int32_t>>& sources, bool evaluate) {
  Shared shared{.spec = spec, .sources = sources, .evaluate = evaluate, .plan = ModelPlan::Make(spec.model)};
  shared.plan.compute_storage = spec.compute_storage;
  const BatchOptions batch = {.micro_batches = 1, .source_tokens = spec.batch_rows, .target_tokens = spec.batch_rows};
  absl::StatusOr<PipelineLayout> pipeline = MakePipelineLayout(shared.plan, batch, spec.pipeline, spec.ranks);
  EXPECT_TRUE(pipeline.ok()) << pipeline.status();
  if (!pipeline.ok()) return {};
  shared.pipeline = *std::move(pipeline);
  shared.outcome.bytes.resize(spec.ranks);
  shared.outcome.launches.resize(spec.ranks);
  InProcessWorld world(spec.ranks);
  const absl::Status status = world.Run([&](Communicator& communicator) { return RunRank(shared, communicator); });
  EXPECT_TRUE(status.ok()) << status;
  shared.outcome.residual_bytes = shared.residual_bytes;
  return std::move(shared.outcome);
}

std::string FirstDifference(const std::vector<Translation>& a, const std::vector<Translation>& b) {
  if (a.size() != b.size()) return absl::StrCat(a.size(), " vs. ", b.size(), " translations");
  if (a.empty()) return "nothing was translated";
  for (size_t s = 0; s < a.size(); ++s) {
    if (a[s].size() != b[s].size()) return absl::StrCat("sentence ", s, ": different numbers of hypotheses");
    for (size_t h = 0; h < a[s].size(); ++h) {
      const Hypothesis &x = a[s][h], &y = b[s][h];
      const std::string where = absl::StrCat("sentence ", s, ", hypothesis ", h);
      if (x.tokens != y.tokens) return absl::StrCat(where, ": different tokens");
      if (!SameBits(&x.score, &y.score, sizeof(double)))
        return absl::StrCat(where, ": scores ", x.score, " vs. ", y.score);
      if (x.token_log_probabilities.size() != y.token_log_probabilities.size() ||
          !SameBits(x.token_log_probabilities.data(), y.token_log_probabilities.data(),
                    x.token_log_probabilities.size() * sizeof(float))) {
        return absl::StrCat(where, ": different log-probabilities");
      }
    }
  }
  return "";
}

}  // namespace hadal::testing
