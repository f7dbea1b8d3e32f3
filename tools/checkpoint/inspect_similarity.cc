#include "tools/checkpoint/inspect_similarity.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/instruction_set.h"
#include "kernels/linear.h"
#include "layers/parameter_store.h"
#include "pipeline/checkpoint/checkpoint_directory.h"
#include "pipeline/checkpoint/model_checkpoint.h"
#include "runtime/comm/in_process_communicator.h"
#include "runtime/compute_thread.h"
#include "runtime/data/corpus.h"
#include "runtime/data/input_masks.h"
#include "runtime/data/sampling_order.h"
#include "runtime/files.h"
#include "runtime/status_macros.h"
#include "tools/checkpoint/checkpoint_vocabularies.h"
#include "tools/commands.h"
#include "tools/output/staged_output.h"
#include "tools/python_child.h"
#include "tools/tool_exit_code.h"

namespace hadal {
namespace {

struct InspectSimilarityOptions {
  std::string checkpoint;             // a checkpoint, or a run directory
  std::string data;                   // prefix of a prepared corpus
  int32_t tokens = 256;               // capacity of each side
  std::string output = "similarity";  // STEM
  int32_t threads = 1;
};

using SimilarityMatrix = std::vector<std::vector<float>>;
constexpr absl::Duration kTimeout = absl::Seconds(600);

// Stores the output of every layer's last sublayer with rows scaled to length 1/sqrt(rows), so that the product of two
// layers is their similarity.
class LayerOutputs : public DepthObserver {
 public:
  explicit LayerOutputs(const ModelPlan& plan) : plan_(plan) {}

  void Observe(const Stream& stream, int32_t micro_batch, const DepthObservation& observation) override {
    if (observation.tensor != DepthTensor::kOutput || !EndsALayer(observation.sublayer)) return;
    const ConstMatrix x = observation.values.floats();
    std::vector<float>& outputs = outputs_[plan_.sublayers[observation.sublayer].stack];
    for (int64_t r = 0; r < x.rows; ++r) {
      double squares = 0;
      for (int64_t i = 0; i < x.columns; ++i) squares += static_cast<double>(x.row(r)[i]) * x.row(r)[i];
      const double scale = squares > 0 ? 1 / std::sqrt(squares * static_cast<double>(x.rows)) : 0;
      for (int64_t i = 0; i < x.columns; ++i) outputs.push_back(static_cast<float>(x.row(r)[i] * scale));
    }
  }

  SimilarityMatrix Similarity(const Stream& stream, Stack stack, int64_t layers) const {
    const auto found = outputs_.find(stack);
    if (found == outputs_.end()) return {};
    const ConstMatrix flat(found->second.data(), layers, static_cast<int64_t>(found->second.size()) / layers);
    std::vector<float> product(layers * layers);
    LinearForward(stream, {.x = flat, .weight = flat, .y = Matrix(product.data(), layers, layers)});
    SimilarityMatrix similarity;
    for (int64_t i = 0; i < layers; ++i) {
      similarity.emplace_back(product.begin() + i * layers, product.begin() + (i + 1) * layers);
    }
    return similarity;
  }

 private:
  bool EndsALayer(int32_t sublayer) const {
    return plan_.sublayers[sublayer].layer >= 0 &&
           plan_.sublayers[sublayer].layer != plan_.sublayers[sublayer + 1].layer;
  }

  const ModelPlan& plan_;
  std::map<Stack, std::vector<float>> outputs_;  // [layers][rows][d]
};

// Checks that the corpus has the model's kind and vocabularies.
absl::Status CheckCorpus(const ModelCheckpoint& checkpoint, const Corpus& corpus) {
  if (const int32_t width = checkpoint.plan().options.frame_width; corpus.manifest().frame_width != width) {
    return InvalidArgumentError(
        width > 0 ? absl::StrCat("the model reads speech, frames of ", width, " features; give a corpus of such frames")
                  : "the corpus is speech, and the model reads tokens; give a corpus of text");
  }
  const bool pairs = !corpus.manifest().monolingual();
  if (pairs && !checkpoint.plan().options.translates()) {
    return InvalidArgumentError("the corpus has pairs of sentences, but the model is ",
                                checkpoint.plan().options.has_encoder() ? "an encoder alone" : "a language model",
                                "; give plain text, prepared with `hadal prepare --monolingual`");
  }
  if (!pairs && checkpoint.plan().options.translates()) {
    return InvalidArgumentError(
        "the corpus is plain text, but the model translates; give a corpus of pairs, such as the one it was trained "
        "on");
  }
  const InputKind given = corpus.manifest().inputs();
  HADAL_RETURN_IF_ERROR(CheckTags(checkpoint.inputs(), given.tags, "the corpus"));
  HADAL_RETURN_IF_ERROR(CheckFeatureKind(checkpoint.inputs(), given, "the corpus"));
  HADAL_ASSIGN_OR_RETURN(const CorpusVocabularies vocabularies, LoadVocabularies(corpus));
  return CheckVocabularies(Found(checkpoint.reader()), corpus.manifest(), vocabularies);
}

absl::StatusOr<LayerSimilarity> MeasureCheckpoint(const InspectSimilarityOptions& options, Communicator& communicator) {
  PrepareComputeThread();
  UseInstructionSets(AvailableInstructionSets());
  HADAL_ASSIGN_OR_RETURN(ModelCheckpoint checkpoint, ModelCheckpoint::Open(options.checkpoint));
  HADAL_ASSIGN_OR_RETURN(const Corpus corpus, Corpus::Open(options.data));
  const ModelPlan& plan = checkpoint.plan();
  HADAL_RETURN_IF_ERROR(CheckCorpus(checkpoint, corpus));
  std::optional<TokenMasking> masking;
  if (!plan.options.has_decoder()) masking = {.share = 0, .vocabulary = plan.options.target_vocabulary};
  HADAL_ASSIGN_OR_RETURN(const ValidationBatches batches,
                         MakeValidationBatches(corpus, {options.tokens, options.tokens, plan.options.max_positions},
                                               options.tokens, masking));
  const BatchOptions batch{.micro_batches = 1, .source_tokens = options.tokens, .target_tokens = options.tokens};
  HADAL_ASSIGN_OR_RETURN(const PipelineLayout pipeline, MakePipelineLayout(plan, batch, {}, 1));
  const Stream stream = Stream::Cpu(options.threads);
  HADAL_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, Engine::Create({.plan = plan,
                                                                               .pipeline = pipeline,
                                                                               .stream = stream,
                                                                               .purpose = Purpose::kInference,
                                                                               .world = communicator,
                                                                               .timeout = kTimeout}));
  HADAL_RETURN_IF_ERROR(checkpoint.ReadWeights(engine->stage().parameters(), engine->stage().stream()));
  return MeasureSimilarity(*engine, batches.batches.front(),
                           std::max<int64_t>(checkpoint.progress().growth_update(), 1));
}

std::string ToJson(const InspectSimilarityOptions& options, const LayerSimilarity& similarity) {
  nlohmann::ordered_json json{{"checkpoint", options.checkpoint},
                              {"data", options.data},
                              {"source_rows", similarity.source_rows},
                              {"target_rows", similarity.target_rows}};
  const auto add = [&json](const char* stack, const SimilarityMatrix& matrix) {
    if (!matrix.empty()) json[stack] = matrix;
  };
  add("encoder", similarity.encoder);
  add("decoder", similarity.decoder);
  return json.dump() + "\n";
}

bool IsSimilarity(std::string_view json) {
  return json.starts_with("{\"checkpoint\":") && json.find("\"source_rows\":") != std::string_view::npos;
}

// Loads the checkpoint, measures, writes STEM.json, and prints the means; the subcommand then lets pyhadal write
// STEM.html. Errors: those of the checkpoint, the corpus and the files; InvalidArgument if the corpus has other
// vocabularies, tags or features than the model, or no sentence fits.
absl::Status RunInspectSimilarity(const InspectSimilarityOptions& options, std::ostream& out) {
  HADAL_RETURN_IF_ERROR(
      CheckOutputs({options.output + ".json", options.output + ".html"}, {.inputs = {}, .is_own = IsSimilarity}));
  HADAL_RETURN_IF_ERROR(CheckCreatable(options.output + ".json"));
  InProcessWorld alone(1);
  HADAL_ASSIGN_OR_RETURN(const LayerSimilarity similarity, MeasureCheckpoint(options, alone.communicator(0)));
  const std::string unique = absl::StrCat(getpid());
  HADAL_RETURN_IF_ERROR(ReplaceFile(options.output + ".json", ToJson(options, similarity), unique));
  const auto print = [&out](const char* stack, const SimilarityMatrix& matrix) {
    if (matrix.size() < 2) return;
    const SimilarityMeans means = MeansOf(matrix);
    out << absl::StreamFormat("%s, %d layers: mean cosine %.4f between neighbours, %.4f between any two\n", stack,
                              matrix.size(), means.neighbours, means.pairs);
  };
  print("encoder", similarity.encoder);
  print("decoder", similarity.decoder);
  out << "written: " << options.output << ".json\n" << std::flush;
  return absl::OkStatus();
}

}  // namespace

SimilarityMeans MeansOf(const std::vector<std::vector<float>>& similarity) {
  const size_t n = similarity.size();
  SimilarityMeans means;
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < i; ++j) {
      means.pairs += similarity[i][j];
      if (j + 1 == i) means.neighbours += similarity[i][j];
    }
  }
  means.neighbours /= static_cast<double>(n - 1);
  means.pairs /= static_cast<double>(n) * static_cast<double>(n - 1) / 2;
  return means;
}

absl::StatusOr<LayerSimilarity> MeasureSimilarity(Engine& engine, const PackedBatch& batch, int64_t update) {
  const ModelPlan& plan = engine.stage().plan();
  LayerOutputs outputs(plan);
  engine.Observe(&outputs);
  const absl::Status status = engine.Evaluate({&batch, 1}, {.update = update, .training = false}).status();
  engine.Observe(nullptr);
  HADAL_RETURN_IF_ERROR(status);
  const Stream& stream = engine.stage().stream();
  return LayerSimilarity{.encoder = outputs.Similarity(stream, Stack::kEncoder, plan.options.encoder_layers),
                         .decoder = outputs.Similarity(stream, Stack::kDecoder, plan.options.decoder_layers),
                         .source_rows = batch.source_rows(),
                         .target_rows = batch.target_rows()};
}

void AddInspectSimilarityCommand(Command app, int& exit_code) {
  Command command = app.FindCommand("inspect").AddCommand(
      "similarity", "Compute the similarity of the outputs of a checkpoint's layers");
  auto options = std::make_shared<InspectSimilarityOptions>();
  command.AddOption("RUN_OR_DIR", options->checkpoint, "Checkpoint, or run directory").Required();
  command.AddOption("CORPUS", options->data, "Prefix of a prepared corpus").Required();
  command.AddNumber("--tokens", options->tokens, "Tokens used per side", 2, 1 << 20);
  command.AddOption("-o,--out", options->output, "Stem of the .json and .html written").ShowDefault();
  command.AddNumber("--threads", options->threads, "CPU threads", 1, 1024);
  command.Runs([options, &exit_code] {
    exit_code = CheckPyhadal("inspect similarity");
    if (exit_code != kToolDone) return;
    const absl::Status status = RunInspectSimilarity(*options, std::cout);
    exit_code = status.ok() ? RunPyhadal("inspect similarity", {options->output + ".json", options->output + ".html"})
                            : EndTool("inspect similarity", status);
  });
}

}  // namespace hadal
