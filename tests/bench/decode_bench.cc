// Translation speed of a random model: sentences and target tokens a second, with the bytes it takes. Prints; passes
// nothing.
//
//   decode_bench [encoder layers] [decoder layers] [d_model] [heads] [sentences] [threads] [ranks as threads]
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <vector>

#include "layers/method_presets.h"
#include "layers/purpose.h"
#include "pipeline/decode/decoder.h"
#include "pipeline/engine/engine.h"
#include "pipeline/exchange/parameter_broadcast.h"
#include "runtime/clock.h"
#include "runtime/comm/in_process_communicator.h"
#include "runtime/compute_thread.h"
#include "runtime/random.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

constexpr int kVocabulary = 8000;
constexpr int kLength = 25;  // source tokens; translations run to this length, as a random model hardly ends by itself

struct Settings {
  int encoder_layers, decoder_layers, d_model, heads, sentences, threads, ranks;
};

std::vector<std::vector<int32_t>> Sources(int sentences) {
  std::vector<std::vector<int32_t>> sources(sentences);
  uint64_t next = 0;
  for (std::vector<int32_t>& source : sources) {
    for (int t = 0; t < kLength; ++t) {
      source.push_back(4 + static_cast<int32_t>(UniformAt(3, RandomSite::kSampling, 1, next++) * (kVocabulary - 4)));
    }
  }
  return sources;
}

absl::Status RunRank(const Settings& s, const ModelPlan& plan, const PipelinePlan& pipeline,
                     Communicator& communicator) {
  PrepareComputeThread();
  const Stream stream = Stream::Cpu(s.threads);
  const absl::Duration timeout = absl::Minutes(10);
  ArenaLayout layout;
  std::vector<int32_t> sublayers;
  for (int32_t i = pipeline.first_sublayer(communicator.rank(), 0); i < pipeline.last_sublayer(communicator.rank(), 0);
       ++i) {
    sublayers.push_back(i);
  }
  ParameterStore parameters(plan, sublayers, Purpose::kInference, layout);
  HADAL_ASSIGN_OR_RETURN(const Arena arena, Arena::Allocate(layout));
  parameters.Bind(arena);
  HADAL_RETURN_IF_ERROR(InitializeParameters(pipeline, parameters, 1, stream, communicator, timeout));
  HADAL_ASSIGN_OR_RETURN(const std::unique_ptr<Decoder> decoder,
                         Decoder::Create(plan, pipeline, parameters, stream, communicator,
                                         {.beam = {.max_length_b = kLength}, .longest_source = 128}, timeout));
  const std::vector<std::vector<int32_t>> sources = Sources(s.sentences);
  const Stopwatch watch;
  HADAL_ASSIGN_OR_RETURN(const std::vector<Translation> translations, decoder->Translate(sources, 1));
  const double seconds = watch.Seconds();
  if (communicator.rank() != 0) return absl::OkStatus();
  int64_t tokens = 0;
  for (const Translation& translation : translations) tokens += static_cast<int64_t>(translation[0].tokens.size()) + 1;
  const DecodeCapacity& capacity = decoder->capacity();
  std::printf(
      "%dL-%dL d=%d, %d ranks of %d threads, beam 4: %.2f sentences/s, %.0f target tokens/s; %d lanes of up to %d "
      "sentences, %.0f MiB for decoding on rank 0\n",
      s.encoder_layers, s.decoder_layers, s.d_model, s.ranks, s.threads, s.sentences / seconds,
      static_cast<double>(tokens) / seconds, capacity.lanes, capacity.sentences, decoder->bytes() / 1048576.0);
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  const auto argument = [&](int i, int otherwise) { return argc > i ? std::atoi(argv[i]) : otherwise; };
  const Settings s = {argument(1, 6),  argument(2, 6), argument(3, 256), argument(4, 4),
                      argument(5, 64), argument(6, 2), argument(7, 1)};
  ModelOptions model{.encoder_layers = s.encoder_layers,
                     .decoder_layers = s.decoder_layers,
                     .d_model = s.d_model,
                     .d_ff = 4 * s.d_model,
                     .heads = s.heads,
                     .source_vocabulary = kVocabulary,
                     .target_vocabulary = kVocabulary,
                     .sharing = EmbeddingSharing::kNone};
  ApplyResidualMethod(ResidualMethod::kDeepNorm, model);
  const ModelPlan plan = ModelPlan::Make(model);
  const absl::StatusOr<PipelinePlan> pipeline =
      MakePipelinePlan(plan, {.micro_batches = 1, .source_tokens = 256, .target_tokens = 1024}, {}, s.ranks);
  InProcessWorld world(s.ranks);
  const absl::Status status =
      pipeline.ok() ? world.Run([&](Communicator& c) { return RunRank(s, plan, *pipeline, c); }) : pipeline.status();
  if (!status.ok()) std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}

}  // namespace
}  // namespace hadal

int main(int argc, char** argv) { return hadal::Main(argc, argv); }
