// Runs a number of updates (0) and then a forward and a backward pass of a small model by hadal's own pipeline, and
// writes all that a second implementation needs to repeat it, and what came out:
//   initial.safetensors                           weights in front of the updates, if there are any
//   weights.safetensors, gradients.safetensors    whole tensors, fp32, under fairseq's names; gradients of the mean
//                                                 loss
//   case.json                                     method, settings, update, sentences; loss and nll sums, each target
//                                                 row's nll
// Weights are hadal's initialisation, moved where they start from zero or one (tests/support/moved_parameters.h).
#include <fstream>
#include <iostream>

#include "layers/method_presets.h"
#include "layers/parameter_store.h"
#include "layers/residual_profile.h"
#include "nlohmann/json.hpp"
#include "pipeline/checkpoint/exported_tensors.h"
#include "pipeline/checkpoint/model_settings.h"
#include "pipeline/engine/engine.h"
#include "pipeline/engine/step_tail.h"
#include "pipeline/exchange/parameter_broadcast.h"
#include "pipeline/layout/pipeline_layout.h"
#include "runtime/comm/in_process_communicator.h"
#include "runtime/compute_thread.h"
#include "runtime/data/input_masks.h"
#include "runtime/random.h"
#include "runtime/safetensors.h"
#include "runtime/status_macros.h"
#include "tests/support/moved_parameters.h"
#include "tools/command_line.h"

namespace hadal {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(60);
constexpr int kMicroBatches = 3;
constexpr int kSentencesPerBatch = 5;
constexpr int kLongestSide = 12;  // rows, </s> counted

struct ProbeOptions {
  std::string directory;
  std::string method = "post_ln";
  std::string sharing = "all";
  std::string growth;  // instead of the method's
  std::string block = "vaswani";
  std::vector<int32_t> cutoffs;
  ModelOptions model;
  int ranks = 1;
  double layer_gain = 1;        // of both stacks, over the method's
  bool norm_gain = false;       // 1/sqrt(l) in both stacks, over the method's
  int32_t block_sublayers = 0;  // of both stacks' blocks
  int64_t update = 3;           // BranchNorm: alpha = 3/7
  int64_t updates = 0;  // by `optimizer`. Its epsilon keeps a gradient of rounding alone from being a direction.
  OptimizerOptions optimizer = {.epsilon = 1e-4, .weight_decay = 0.1};
  double learning_rate = 5e-3;
  uint64_t seed = 20;  // of weights, of what they are moved by (+ 1) and of sentences (+ 2)
};

// What the ranks, threads of this process, fill in together: each the parameters it owns, the last one the losses.
struct Outcome {
  std::vector<std::vector<float>> initial;    // [parameters] in plan order
  std::vector<std::vector<float>> weights;    // [parameters] behind the updates
  std::vector<std::vector<float>> gradients;  // [parameters]
  std::vector<float> row_nll;                 // [target rows] micro-batch after micro-batch
  LossSums training, evaluation;
};

// Uniform integers, one after the other.
class Draws {
 public:
  explicit Draws(uint64_t seed) : seed_(seed) {}
  int32_t Below(int32_t n) { return static_cast<int32_t>(UniformAt(seed_, RandomSite::kSampling, 0, next_++) * n); }

 private:
  uint64_t seed_;
  uint64_t next_ = 0;
};

// `rows` - 1 random pieces and </s>.
std::vector<int32_t> RandomSentence(Draws& draws, int rows, int32_t vocabulary) {
  std::vector<int32_t> sentence(rows - 1);
  for (int32_t& token : sentence) token = kUnknownToken + draws.Below(vocabulary - kUnknownToken);
  sentence.push_back(kEosToken);
  return sentence;
}

// 4 · rows - 3 to 4 · rows frames of random features, behind the others.
void AppendFrames(Draws& draws, int rows, int32_t width, PackedBatch& batch) {
  const int frames = 4 * rows - draws.Below(4);
  batch.frame_width = width;
  if (batch.frame_offsets.empty()) batch.frame_offsets = {0};
  for (int i = 0; i < frames * width; ++i) {
    batch.frames.push_back(static_cast<float>(draws.Below(4096)) / 1024 - 2);
  }
  batch.frame_offsets.push_back(batch.frame_offsets.back() + frames);
  batch.source.insert(batch.source.end(), SubsampledRows(frames), kPadToken);
}

// Ragged, of a language model targets alone; the first pair of each micro-batch is </s> alone on both sides, the second
// on one.
std::vector<PackedBatch> RandomBatches(const ModelOptions& model, uint64_t seed) {
  Draws draws(seed);
  std::vector<PackedBatch> batches(kMicroBatches);
  for (int m = 0; m < kMicroBatches; ++m) {
    PackedBatch& batch = batches[m];
    batch.micro_batch = m;
    batch.source_offsets = batch.target_offsets = {0};
    for (int s = 0; s < kSentencesPerBatch; ++s) {
      const int source_rows = s == 0 ? 1 : 1 + draws.Below(kLongestSide);
      const int target_rows = s <= 1 ? 1 : 1 + draws.Below(kLongestSide);
      std::vector<int32_t> source;
      if (model.reads_speech()) {
        AppendFrames(draws, source_rows, model.frame_width, batch);
      } else if (model.translates()) {
        source = RandomSentence(draws, source_rows, model.source_vocabulary);
      }
      const std::vector<int32_t> target = RandomSentence(draws, target_rows, model.target_vocabulary);
      batch.source.insert(batch.source.end(), source.begin(), source.end());
      batch.target.insert(batch.target.end(), target.begin(), target.end());
      batch.target_input.push_back(kEosToken);
      batch.target_input.insert(batch.target_input.end(), target.begin(), target.end() - 1);
      batch.source_offsets.push_back(static_cast<int32_t>(batch.source.size()));
      batch.target_offsets.push_back(static_cast<int32_t>(batch.target.size()));
      batch.samples.push_back(m * kSentencesPerBatch + s);
    }
    if (model.has_decoder()) continue;
    batch.source.clear();
    const int32_t mask = model.target_vocabulary - 1;
    MaskTokens({.share = 0.3, .mask_token = mask, .vocabulary = mask + 1, .special = {0, 1, 2, 3, mask}}, seed, 0,
               batch);
  }
  return batches;
}

absl::Status RunRank(const ModelPlan& plan, const PipelineLayout& pipeline, const std::vector<PackedBatch>& batches,
                     const ProbeOptions& options, Communicator& communicator, Outcome& outcome) {
  const Stream stream = Stream::Cpu(1);
  HADAL_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, Engine::Create({.plan = plan,
                                                                               .pipeline = pipeline,
                                                                               .stream = stream,
                                                                               .purpose = Purpose::kTraining,
                                                                               .world = communicator,
                                                                               .timeout = kTimeout}));
  const ParameterStore& parameters = engine->stage().parameters();
  HADAL_RETURN_IF_ERROR(InitializeParameters(pipeline, parameters, options.seed, stream, communicator, kTimeout));
  testing::MoveParametersOffTheirStart(parameters, options.seed + 1);
  HADAL_RETURN_IF_ERROR(engine->DistributeWeights());
  HADAL_RETURN_IF_ERROR(engine->ProfileResidualStream(batches[0], {.seed = options.seed}).status());
  const auto copy_weights = [&](std::vector<std::vector<float>>& weights) {
    for (const int32_t p : parameters.owned()) {
      const Vector weight = parameters.WeightVector(p);
      weights[p].assign(weight.data, weight.data + weight.size);
    }
  };
  copy_weights(outcome.initial);
  int64_t target_rows = 0;
  for (const PackedBatch& batch : batches) target_rows += batch.target_rows();
  StepScalars scalars{.seed = options.seed, .gradient_scale = 1.0f / static_cast<float>(target_rows)};
  UpdateSettings settings{.optimizer = options.optimizer, .learning_rate = options.learning_rate};
  for (scalars.update = 1; scalars.update <= options.updates; ++scalars.update) {
    HADAL_RETURN_IF_ERROR(engine->TrainingStep(batches, scalars, settings).status());
  }
  copy_weights(outcome.weights);

  std::vector<float> row_nll;
  scalars.update = options.update, scalars.training = false;
  HADAL_ASSIGN_OR_RETURN(const LossSums evaluation, engine->Evaluate(batches, scalars, &row_nll));
  scalars.training = true, settings.apply = false;
  HADAL_ASSIGN_OR_RETURN(const StepResult result, engine->TrainingStep(batches, scalars, settings));
  for (const StateSlice& slice : engine->state().owned()) {
    std::vector<float>& gradient = outcome.gradients[slice.parameter];
    gradient.resize(plan.parameters[slice.parameter].elements());
    std::copy_n(slice.gradient.data, slice.gradient.size, gradient.begin() + slice.slice * kSliceElements);
  }
  if (communicator.rank() == communicator.size() - 1) {
    outcome.row_nll = std::move(row_nll);
    outcome.training = result.gradient.loss;
    outcome.evaluation = evaluation;
  }
  return absl::OkStatus();
}

absl::Status WriteTensors(const ModelPlan& plan, const std::vector<std::vector<float>>& values,
                          const std::string& path) {
  const std::vector<ExportedTensor> exported = ExportedTensors(DescribeParameters(plan));
  std::vector<SafetensorsTensor> tensors;
  for (const ExportedTensor& tensor : exported) tensors.push_back({.name = tensor.name, .shape = tensor.shape});
  HADAL_ASSIGN_OR_RETURN(SafetensorsWriter writer, SafetensorsWriter::Create(path, tensors, {}));
  for (const ExportedTensor& tensor : exported) {
    for (size_t row = 0; row < tensor.parameters.size(); ++row) {
      std::vector<float> elements = values[tensor.parameters[row]];
      HADAL_CHECK_EQ(static_cast<int64_t>(elements.size()), plan.parameters[tensor.parameters[row]].elements());
      elements.resize(elements.size() + tensor.ZerosAfter(row), 0.0f);
      HADAL_RETURN_IF_ERROR(
          writer.Append({reinterpret_cast<const char*>(elements.data()), elements.size() * sizeof(float)}));
    }
  }
  return writer.Finish().status();
}

absl::Status WriteCase(const ProbeOptions& options, const std::vector<PackedBatch>& batches, const Outcome& outcome) {
  nlohmann::ordered_json json = {{"method", options.method},
                                 {"update", options.update},
                                 {"layer_gain", options.layer_gain},
                                 {"norm_gain", options.norm_gain},
                                 {"model", nlohmann::ordered_json::parse(ModelSettingsJson(options.model))},
                                 {"tokens", outcome.training.tokens},
                                 {"loss_sum", outcome.training.loss},
                                 {"nll_sum", outcome.training.nll},
                                 {"evaluation_loss_sum", outcome.evaluation.loss},
                                 {"row_nll", outcome.row_nll}};
  const OptimizerOptions& optimizer = options.optimizer;
  if (options.updates > 0) {
    json["updates"] = {{"number", options.updates},          {"muon", optimizer.kind == OptimizerKind::kMuon},
                       {"rate", options.learning_rate},      {"betas", {optimizer.beta1, optimizer.beta2}},
                       {"epsilon", optimizer.epsilon},       {"decay", optimizer.weight_decay},
                       {"momentum", optimizer.muon.momentum}};
  }
  if (IsProfiled(ModelPlan::Make(options.model))) json["profiled_sentences"] = batches[0].sentences();
  for (const PackedBatch& batch : batches) {
    for (int64_t s = 0; s < batch.sentences(); ++s) {
      const auto sentence = [s](const std::vector<int32_t>& tokens, const std::vector<int32_t>& offsets) {
        return std::vector<int32_t>(tokens.begin() + offsets[s], tokens.begin() + offsets[s + 1]);
      };
      nlohmann::ordered_json source = sentence(batch.source, batch.source_offsets);
      if (batch.frame_width > 0) {  // its frames, one list for each
        source.clear();
        for (int32_t f = batch.frame_offsets[s]; f < batch.frame_offsets[s + 1]; ++f) {
          const auto first = batch.frames.begin() + f * batch.frame_width;
          source.push_back(std::vector<float>(first, first + batch.frame_width));
        }
      }
      std::vector<int32_t> target = sentence(batch.target, batch.target_offsets);
      if (!options.model.has_decoder()) {  // at the masked rows, padding elsewhere
        const int32_t first = batch.source_offsets[s];
        const std::vector<int32_t> rows = sentence(batch.target_input, batch.target_offsets), masked = target;
        target.assign(batch.source_offsets[s + 1] - first, kPadToken);
        for (size_t i = 0; i < rows.size(); ++i) target[rows[i] - first] = masked[i];
      }
      json["sentences"].push_back({std::move(source), std::move(target)});
    }
  }
  std::ofstream file(options.directory + "/case.json");
  file << json.dump(1) << "\n";
  file.close();
  return file.good() ? absl::OkStatus() : absl::UnavailableError(absl::StrCat("cannot write to ", options.directory));
}

// Each value of each field of a block is in one of these.
Block BlockNamed(const std::string& name) {
  Block block;
  if (name == "llama" || name == "qwen3") {
    block = {.norm = NormKind::kRms, .norm_epsilon = 1e-6, .norm_shift = false};
    block.activation = Activation::kSilu, block.gated = true;
    block.biases = name == "llama" ? Biases::kNone : Biases::kQkv;
    block.positions = Positions::kRotary, block.kv_heads = name == "llama" ? 2 : 1;
    if (name == "llama")
      block.window = 5, block.global_every = 2, block.rotary_scaling = 8, block.rotary_scaling_positions = 16;
    block.query_key_norm = name == "qwen3";
    if (name == "qwen3") block.rotary_theta = 1e6, block.rotary_share = 0.5, block.head_width = 12;
  } else if (name == "gpt2") {
    block.activation = Activation::kGeluTanh, block.positions = Positions::kLearned;
    block.scale_embedding = false;
  } else if (name == "bert") {
    block = {.norm_epsilon = 1e-12, .activation = Activation::kGelu, .positions = Positions::kLearned};
    block.scale_embedding = false, block.embedding_norm = true, block.initial_deviation = 0.2;
  } else if (name == "modernbert") {
    block.norm_shift = false, block.activation = Activation::kGelu, block.gated = true, block.biases = Biases::kNone;
    block.positions = Positions::kRotary, block.rotary_theta = 160000;
    block.window = 4, block.global_every = 3, block.rotary_local_theta = 100;
  } else if (name == "gated_relu") {
    block.norm = NormKind::kRms, block.norm_epsilon = 1e-3, block.gated = true;
    block.positions = Positions::kNone, block.head_width = 5, block.kv_heads = 2;
    block.query_key_norm = block.attention_gate = true, block.window = 3;
  }
  return block;
}

absl::Status CompleteModel(ProbeOptions& options) {
  ModelOptions& model = options.model;
  HADAL_ASSIGN_OR_RETURN(const ResidualMethod method, ParseResidualMethod(options.method));
  ApplyResidualMethod(method, model);
  model.block = BlockNamed(options.block);
  model.block.first_norm = options.block != "modernbert" || model.decoder.norm != NormPlacement::kPre;
  for (StackMethod* stack : {&model.encoder, &model.decoder}) {
    if (options.layer_gain != 1) stack->layer_gain = options.layer_gain;
    if (options.norm_gain) stack->norm_gain = DepthInit::kInverseSqrt;
    stack->attention_residual_block_sublayers = options.block_sublayers;
  }
  if (options.growth == "exponential") model.branch_growth = BranchGrowth::kExponential;
  if (options.growth == "sigmoid") model.branch_growth = BranchGrowth::kSigmoid;
  for (const int32_t id : options.cutoffs) model.adaptive_cutoffs.ids.at(model.adaptive_cutoffs.count++) = id;
  if (model.adaptive()) model.label_smoothing = 0;
  model.branch_growth_updates = 7;
  model.branch_growth_steepness = DefaultSteepness(model.branch_growth);
  model.dropout = 0;
  model.max_positions = kLongestSide;
  model.sharing = options.sharing == "all"       ? EmbeddingSharing::kAll
                  : options.sharing == "decoder" ? EmbeddingSharing::kDecoder
                                                 : EmbeddingSharing::kNone;
  // Where nothing forces them to be equal they differ, so that a mix-up shows.
  if (model.sharing != EmbeddingSharing::kAll) model.source_vocabulary += 10;
  if (!model.translates() || model.reads_speech()) model.source_vocabulary = 0;
  return ValidateModelOptions(model);
}

absl::Status Probe(ProbeOptions& options) {
  HADAL_RETURN_IF_ERROR(CompleteModel(options));
  ModelPlan plan = ModelPlan::Make(options.model);
  plan.muon_steps = options.optimizer.muon_steps();
  const std::vector<PackedBatch> batches = RandomBatches(options.model, options.seed + 2);
  constexpr int kCapacity = kSentencesPerBatch * kLongestSide;
  HADAL_ASSIGN_OR_RETURN(
      const PipelineLayout pipeline,
      MakePipelineLayout(plan, {.micro_batches = kMicroBatches, .source_tokens = kCapacity, .target_tokens = kCapacity},
                         {}, options.ranks));
  Outcome outcome;
  for (auto* of : {&outcome.initial, &outcome.weights, &outcome.gradients}) of->resize(plan.parameters.size());
  InProcessWorld world(options.ranks);
  HADAL_RETURN_IF_ERROR(world.Run([&](Communicator& communicator) {
    PrepareComputeThread();
    return RunRank(plan, pipeline, batches, options, communicator, outcome);
  }));
  if (options.updates > 0) {
    HADAL_RETURN_IF_ERROR(WriteTensors(plan, outcome.initial, options.directory + "/initial.safetensors"));
  }
  HADAL_RETURN_IF_ERROR(WriteTensors(plan, outcome.weights, options.directory + "/weights.safetensors"));
  HADAL_RETURN_IF_ERROR(WriteTensors(plan, outcome.gradients, options.directory + "/gradients.safetensors"));
  return WriteCase(options, batches, outcome);
}

}  // namespace
}  // namespace hadal

int main(int argc, char** argv) {
  hadal::ProbeOptions options;
  hadal::ModelOptions& model = options.model;
  model.source_vocabulary = model.target_vocabulary = 61;
  bool muon = false;
  hadal::CommandLine line("parity_probe", "One forward and backward pass by hadal, written for compare.py");
  hadal::Command app = line.program();
  app.AddOption("--directory", options.directory, "an existing, empty directory").Required();
  app.AddOption("--method", options.method, "a residual method");
  app.AddOption("--sharing", options.sharing, "of embeddings").OneOf({"none", "decoder", "all"});
  app.AddOption("--block", options.block, "of branches and norms")
      .OneOf({"vaswani", "gpt2", "bert", "llama", "qwen3", "modernbert", "gated_relu"});
  app.AddOption("--growth", options.growth, "of BranchNorm's gain").OneOf({"exponential", "sigmoid"});
  app.AddOption("--layer-gain", options.layer_gain, "over the method's");
  app.AddFlag("--norm-gain", options.norm_gain, "1/sqrt(l), over the method's");
  app.AddOption("--block-sublayers", options.block_sublayers, "of attention residuals");
  app.AddOption("--encoder-layers", model.encoder_layers, "0: a language model");
  app.AddOption("--decoder-layers", model.decoder_layers, "0: an encoder alone");
  app.AddOption("--width", model.d_model, "d_model");
  app.AddOption("--base-width", model.base_width, "of muP; 0: d_model");
  app.AddOption("--hidden", model.d_ff, "width of feed-forward layers");
  app.AddOption("--heads", model.heads, "attention heads");
  app.AddOption("--frame-width", model.frame_width, "speech: features of a frame; 0: text");
  app.AddOption("--channels", model.front_end_channels, "speech: of the first convolution");
  app.AddOption("--label-smoothing", model.label_smoothing, "of the loss");
  app.AddOption("--z-loss", model.z_loss, "of the loss");
  app.AddOption("--cutoffs", options.cutoffs, "of an adaptive softmax").SplitAt(',');
  app.AddOption("--factor", model.adaptive_factor, "of its widths");
  app.AddOption("--update", options.update, "BranchNorm's t");
  app.AddOption("--updates", options.updates, "in front of the pass that is compared");
  app.AddFlag("--muon", muon, "the optimizer's kind");
  app.AddOption("--ranks", options.ranks, "stages");
  app.AddOption("--seed", options.seed, "of weights and sentences");
  if (line.Run(argc, argv, std::cerr) != hadal::CommandLine::Outcome::kRan) return 2;
  if (muon) options.optimizer.kind = hadal::OptimizerKind::kMuon;
  const absl::Status status = hadal::Probe(options);
  if (!status.ok()) std::cerr << "parity_probe: " << status << "\n";
  return status.ok() ? 0 : 1;
}
