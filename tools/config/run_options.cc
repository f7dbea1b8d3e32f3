#include "tools/config/run_options.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/choice_words.h"
#include "runtime/data/bleu.h"
#include "runtime/status_macros.h"
#include "tools/config/config_schema.h"
#include "tools/config/config_value.h"
#include "tools/config/model_config.h"

namespace hadal {
namespace {

constexpr Word<TrainingPrecision> kPrecisions[] = {{"auto", TrainingPrecision::kAuto},
                                                   {"fp32", TrainingPrecision::kFp32},
                                                   {"tf32", TrainingPrecision::kTf32},
                                                   {"bf16", TrainingPrecision::kBf16}};
constexpr Word<bool> kShardings[] = {{"none", false}, {"state", true}};
constexpr Word<GraphMode> kGraphModes[] = {{"auto", GraphMode::kAuto}, {"off", GraphMode::kOff}};
constexpr Word<Placement> kPlacements[] = {{"replicas_together", Placement::kReplicasTogether},
                                           {"stages_together", Placement::kStagesTogether}};
constexpr Word<Transport> kTransports[] = {
    {"auto", Transport::kAuto}, {"nccl", Transport::kNccl}, {"host", Transport::kHost}};
constexpr Word<RateSchedule> kRates[] = {{"inverse_sqrt", RateSchedule::kInverseSqrt},
                                         {"polynomial", RateSchedule::kPolynomial},
                                         {"constant", RateSchedule::kConstant},
                                         {"cosine", RateSchedule::kCosine},
                                         {"wsd", RateSchedule::kWsd},
                                         {"t_fixup", RateSchedule::kTFixup}};
constexpr Word<ValidationMetric> kMetrics[] = {
    {"nll", ValidationMetric::kNll}, {"bleu", ValidationMetric::kBleu}, {"chrf", ValidationMetric::kChrf}};
constexpr Word<OptimizerKind> kOptimizers[] = {{"adam", OptimizerKind::kAdam}, {"muon", OptimizerKind::kMuon}};
constexpr Word<MuonScale> kMuonScales[] = {{"match_rms_adamw", MuonScale::kMatchRms},
                                           {"original", MuonScale::kOriginal}};
constexpr Word<DecayShape> kDecayShapes[] = {
    {"linear", DecayShape::kLinear}, {"one_minus_sqrt", DecayShape::kOneMinusSqrt}, {"cosine", DecayShape::kCosine}};

// Calls visit(path, message, field) for every field that `message` sets, until one is an error.
template <typename Visit>
absl::Status ForEachSetField(const ConfigMessage& message, const std::string& parent, const Visit& visit) {
  std::vector<const FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    const std::string path = FieldPath(parent, field->name());
    HADAL_RETURN_IF_ERROR(IsMessage(*field)
                              ? ForEachSetField(message.GetReflection()->GetMessage(message, field), path, visit)
                              : visit(path, message, *field));
  }
  return absl::OkStatus();
}

absl::Status ReadPipeline(const config::Pipeline& from, const ModelOptions& model, PipelineOptions& to) {
  to.stages = from.stages();
  to.replicas = from.replicas();
  to.placement = FromWord(kPlacements, from.placement());
  to.shard_optimizer_state = FromWord(kShardings, from.optimizer_sharding());
  to.transport = FromWord(kTransports, from.transport());
  to.chunks = from.chunks();
  HADAL_ASSIGN_OR_RETURN(to.schedule, ParseScheduleKind(from.schedule()));
  to.split.assign(from.split().begin(), from.split().end());
  to.outstanding_sends = from.outstanding_sends();
  to.recompute_every = from.recompute_every();
  to.memory_limit_bytes = from.memory_limit_bytes();
  const bool sets_recompute = from.has_recompute_every() || from.has_recompute_auto();
  to.recompute_auto = sets_recompute ? from.recompute_auto() : to.memory_limit_bytes > 0;
  to.wait_timeout_seconds = from.wait_timeout_seconds();
  to.threads = from.threads();
  to.graphs = FromWord(kGraphModes, from.graphs());
  if (to.chunks > 1 && (to.schedule == ScheduleKind::kGpipe || !RunsSeveralChunks(to.schedule))) {
    return InvalidArgumentError("pipeline.chunks = ", to.chunks, " is not allowed with pipeline.schedule = \"",
                                from.schedule(), "\"; set chunks to 1 or schedule to \"interleaved_1f1b\"");
  }
  const int64_t embeddings_and_head = model.translates() ? 3 : 2;
  const int64_t sublayers = model.encoder_sublayers() + model.decoder_sublayers() + embeddings_and_head;
  for (size_t i = 0; i < to.split.size(); ++i) {
    const int32_t lower = i == 0 ? 0 : to.split[i - 1];
    if (to.split[i] <= lower || to.split[i] >= sublayers) {
      return InvalidArgumentError("pipeline.split: entry ", i + 1, " = ", to.split[i],
                                  " is not allowed; entries must ascend and lie in [1, ", sublayers - 1, "]");
    }
  }
  const int64_t cuts = int64_t{to.stages} * to.chunks - 1;
  if (!to.split.empty() && to.stages > 0 && static_cast<int64_t>(to.split.size()) != cuts) {
    return InvalidArgumentError("pipeline.split has ", to.split.size(), " entries; ", to.stages, " stages of ",
                                to.chunks, " chunks need ", cuts);
  }
  return absl::OkStatus();
}

// An iteration takes each singular value x, of at most 1, to a·x + b·x³ + c·x⁵. Beyond kMost updates would overflow.
absl::Status CheckIteration(const NewtonSchulz& iteration) {
  constexpr double kMost = 100, kValues = 1000;
  for (int i = 1; i <= kValues; ++i) {
    double x = i / kValues;
    for (int step = 0; step < iteration.steps && std::abs(x) <= kMost; ++step) {
      x *= iteration.a + x * x * (iteration.b + x * x * iteration.c);
    }
    if (std::abs(x) <= kMost) continue;
    return InvalidArgumentError("optimizer.muon.coefficients diverge: they take a singular value of ", i / kValues,
                                " beyond ", kMost, " within optimizer.muon.steps = ", iteration.steps,
                                ". Leave them out, or choose others.");
  }
  return absl::OkStatus();
}

absl::Status ReadMuon(const config::Muon& from, MuonOptions& to) {
  to.momentum = from.momentum();
  to.nesterov = from.nesterov();
  to.iteration.steps = from.steps();
  to.scale = FromWord(kMuonScales, from.scale());
  to.rate_factor = from.rate_factor();
  if (from.coefficients().empty()) return absl::OkStatus();
  if (from.coefficients_size() != 3) {
    return InvalidArgumentError("optimizer.muon.coefficients has ", from.coefficients_size(),
                                " numbers; give three: a, b, c");
  }
  to.iteration.a = from.coefficients(0);
  to.iteration.b = from.coefficients(1);
  to.iteration.c = from.coefficients(2);
  return CheckIteration(to.iteration);
}

void ReadOptimizer(const config::RunConfig& from, TrainOptions& to) {
  to.optimizer.kind = FromWord(kOptimizers, from.optimizer().kind());
  to.optimizer.beta1 = from.optimizer().beta1();
  to.optimizer.beta2 = from.optimizer().beta2();
  to.optimizer.epsilon = from.optimizer().epsilon();
  to.optimizer.weight_decay = from.optimizer().weight_decay();
  to.optimizer.decays_vectors = from.optimizer().decay_of() == "all";
  to.optimizer.clip_norm = from.optimizer().clip_norm();
  to.frozen.assign(from.optimizer().frozen().begin(), from.optimizer().frozen().end());
  const config::LearningRate& rate = from.learning_rate();
  to.rate.schedule = FromWord(kRates, rate.schedule());
  to.rate.peak = rate.peak();
  to.rate.warmup_updates = static_cast<double>(rate.warmup_updates());
  to.rate.warmup_initial_rate = rate.warmup_initial_rate();
  to.rate.end_rate = rate.end_rate();
  to.rate.power = rate.power();
  to.rate.decay_updates = static_cast<double>(rate.decay_updates());
  to.rate.decay_shape = FromWord(kDecayShapes, rate.decay_shape());
}

void ReadRun(const config::RunConfig& from, TrainOptions& to) {
  to.seed = from.seed();
  to.precision = FromWord(kPrecisions, from.device().precision());
  to.weight_gradient_batch = from.device().weight_gradient_batch();
  to.pipeline.overlap_weight_gradients = from.device().overlap_weight_gradients();
  to.train_data = from.data().train();
  to.validation_data = from.data().validation();
  to.max_left_out = from.data().max_left_out();
  to.sampling_temperature.assign(from.data().sampling_temperature().begin(), from.data().sampling_temperature().end());
  const config::SpecAugment& augment = from.data().spec_augment();
  to.spec_augment = {.frequency_masks = augment.frequency_masks(),
                     .frequency_width = augment.frequency_width(),
                     .time_masks = augment.time_masks(),
                     .time_width = augment.time_width(),
                     .time_share = augment.time_share()};
  if (from.model().decoder_layers() == 0) {
    const config::Masking& masking = from.data().masking();
    to.masking = {
        .share = masking.share(), .only_mask = masking.replacement() == "mask", .whole_words = masking.whole_words()};
  }
  to.batch.micro_batches = from.batch().micro_batches();
  to.batch.sum_groups = from.batch().sum_groups();
  to.batch.source_tokens = from.batch().source_tokens();
  to.batch.target_tokens = from.batch().target_tokens();
  to.stop.steps = from.stop().steps();
  to.stop.epochs = from.stop().epochs();
  to.stop.minutes = from.stop().minutes();
  to.stop.patience = from.stop().patience();
  to.validation.every_steps = from.validation().every_steps();
  to.validation.max_sentences = from.validation().max_sentences();
  to.validation.bleu_sentences = from.validation().bleu_sentences();
  to.validation.bleu_tokenizer = FromWord(kBleuTokenizers, from.validation().bleu_tokenizer());
  to.validation.metric = FromWord(kMetrics, from.validation().metric());
  if (to.validation.every_steps > 0 && to.validation.bleu_sentences > 0) {
    to.pipeline.decoder = {.beam = MakeBeamOptions(from.decode()), .sentences = to.validation.bleu_sentences};
  }
  to.checkpoint.every_steps = from.checkpoint().every_steps();
  to.checkpoint.every_minutes = from.checkpoint().every_minutes();
  to.checkpoint.keep_last = from.checkpoint().keep_last();
  to.checkpoint.keep_every = from.checkpoint().keep_every();
  to.checkpoint.keep_best = from.checkpoint().keep_best();
  to.checkpoint.save_at_end = from.checkpoint().save_at_end();
  to.checkpoint.memory_every_steps = from.checkpoint().memory_every_steps();
  to.checkpoint.memory_folder = from.checkpoint().memory_folder();
  // Saves by the clock alone are rare: updates may wait for them.
  const bool buffers = to.checkpoint.every_steps > 0 || to.checkpoint.memory_every_steps > 0;
  to.pipeline.save_buffer_bytes = buffers ? int64_t{from.checkpoint().buffer_mebibytes()} << 20 : 0;
  to.health.skipped_steps = from.health().skipped_steps();
  to.health.loss_spike = {.deviations = from.health().loss_spike_deviations(),
                          .window = from.health().loss_spike_window()};
  to.log_every_steps = from.logging().every_steps();
  to.depth.enabled = from.instruments().enabled();
  to.depth.dense_steps = from.instruments().dense_steps();
  to.depth.per_decade = from.instruments().per_decade();
  to.depth.probe_tokens = from.instruments().probe_tokens();
}

// A fraction of the run in updates.
absl::StatusOr<double> Updates(const char* field, double fraction, int64_t steps) {
  if (fraction == 0) return 0.0;
  if (steps == 0) {
    return InvalidArgumentError(field, " = ", fraction,
                                " is a fraction of stop.steps, which is not set; set it, or give updates instead");
  }
  return std::max(1.0, std::round(fraction * static_cast<double>(steps)));
}

absl::Status ResolveFractions(const config::RunConfig& from, TrainOptions& to) {
  const config::Residual& residual = from.model().residual();
  to.model.branch_growth_updates = static_cast<double>(residual.growth_updates());
  if (residual.has_growth_fraction() && to.model.branch_growth != BranchGrowth::kConstant) {
    HADAL_ASSIGN_OR_RETURN(to.model.branch_growth_updates,
                           Updates("model.residual.growth_fraction", residual.growth_fraction(), to.stop.steps));
  }
  if (from.learning_rate().has_warmup_fraction()) {
    HADAL_ASSIGN_OR_RETURN(to.rate.warmup_updates, Updates("learning_rate.warmup_fraction",
                                                           from.learning_rate().warmup_fraction(), to.stop.steps));
  }
  if (from.learning_rate().has_decay_fraction()) {
    HADAL_ASSIGN_OR_RETURN(to.rate.decay_updates, Updates("learning_rate.decay_fraction",
                                                          from.learning_rate().decay_fraction(), to.stop.steps));
  }
  return absl::OkStatus();
}

absl::Status CheckAtMostPeak(const char* field, double value, double peak) {
  if (value <= peak) return absl::OkStatus();
  return InvalidArgumentError("learning_rate.", field, " = ", value,
                              " is not allowed; it must be at most learning_rate.peak = ", peak);
}

absl::Status CheckRate(const TrainOptions& options) {
  const RateOptions& rate = options.rate;
  const bool starts_at_rate = rate.schedule != RateSchedule::kPolynomial && rate.schedule != RateSchedule::kTFixup;
  if (starts_at_rate && rate.warmup_updates > 0) {
    HADAL_RETURN_IF_ERROR(CheckAtMostPeak("warmup_initial_rate", rate.warmup_initial_rate, rate.peak));
  }
  if (!EndsWithRun(rate.schedule)) return absl::OkStatus();
  const std::string schedule = absl::StrCat("learning_rate.schedule = \"", ToWord(kRates, rate.schedule), "\"");
  if (options.stop.steps == 0) return InvalidArgumentError(schedule, " ends at stop.steps, which is not set");
  HADAL_RETURN_IF_ERROR(CheckAtMostPeak("end_rate", rate.end_rate, rate.peak));
  if (rate.schedule != RateSchedule::kWsd) return absl::OkStatus();
  const double most = static_cast<double>(options.stop.steps) - rate.warmup_updates;
  if (rate.decay_updates >= 1 && rate.decay_updates <= most) return absl::OkStatus();
  return InvalidArgumentError(schedule, " needs a decay of 1 to ", most,
                              " updates, the run without its warm-up; it is ", rate.decay_updates,
                              ". Set learning_rate.decay_fraction, for example 0.2.");
}

// Without norms, a layer passes on its input times (a + c·r).
void WarnOfFading(const char* stack, const StackMethod& method, int32_t layers, std::vector<std::string>& warnings) {
  if (method.norm != NormPlacement::kNone) return;
  const double kept = std::pow(method.skip_gain + method.layer_gain * method.residual_gain, layers);
  constexpr double kFaded = 1e-3;
  if (kept >= kFaded) return;
  warnings.push_back(absl::StrCat("without norms the ", stack, "'s ", layers, " layers shrink the residual stream to ",
                                  absl::StrFormat("%.1e", kept),
                                  " of its size; use a method with norms at this depth"));
}

std::vector<std::string> Warnings(const config::RunConfig& config, const TrainOptions& options) {
  std::vector<std::string> warnings;
  const double steps = static_cast<double>(options.stop.steps);
  const bool warms_up = options.rate.schedule != RateSchedule::kTFixup;
  if (steps > 0 && warms_up && options.rate.warmup_updates >= steps) {
    warnings.push_back(absl::StrCat("the run ends inside the warm-up: stop.steps = ", steps, ", warm-up = ",
                                    options.rate.warmup_updates, " updates; try learning_rate.warmup_fraction=0.1"));
  }
  const bool grows = options.model.branch_growth != BranchGrowth::kConstant;
  if (steps > 0 && grows && options.model.branch_growth_updates >= steps) {
    warnings.push_back(absl::StrCat("the run ends before the branch gain is 1: stop.steps = ", steps,
                                    ", T = ", options.model.branch_growth_updates,
                                    " updates; try model.residual.growth_fraction=0.1"));
  }
  if (!options.model.has_encoder() && config.model().residual().encoder().ByteSizeLong() > 0) {
    warnings.push_back("model.residual.encoder is set, but model.encoder_layers = 0: it is not used");
  }
  if (!options.model.has_decoder() && config.model().residual().decoder().ByteSizeLong() > 0) {
    warnings.push_back("model.residual.decoder is set, but model.decoder_layers = 0: it is not used");
  }
  WarnOfFading("encoder", options.model.encoder, options.model.encoder_layers, warnings);
  WarnOfFading("decoder", options.model.decoder, options.model.decoder_layers, warnings);
  if (!config.data().validation().empty() && !config.validation().has_every_steps()) {
    warnings.push_back("data.validation is set, but validation.every_steps is not: nothing is validated");
  }
  const config::LearningRate& rate = config.learning_rate();
  if (rate.end_rate() > 0 && rate.schedule() != "polynomial" && rate.schedule() != "cosine" &&
      rate.schedule() != "wsd") {
    warnings.push_back(
        absl::StrCat("learning_rate.schedule = \"", rate.schedule(), "\" does not use learning_rate.end_rate"));
  }
  if (!warms_up && (rate.has_warmup_updates() || rate.has_warmup_fraction())) {
    warnings.push_back("learning_rate.schedule = \"t_fixup\" has no warm-up; the configured warm-up is not used");
  }
  return warnings;
}

}  // namespace

BeamOptions MakeBeamOptions(const config::Decode& decode) {
  return {.beam = decode.beam(),
          .length_penalty = decode.length_penalty(),
          .max_length_a = decode.max_length_a(),
          .max_length_b = static_cast<double>(decode.max_length_b()),
          .no_repeat_ngram = decode.no_repeat_ngram()};
}

absl::StatusOr<RunOptions> MakeRunOptions(const config::RunConfig& config) {
  HADAL_RETURN_IF_ERROR(ForEachSetField(config, "", CheckValue));  // made by code it has not passed the loader's checks
  RunOptions options;
  TrainOptions& train = options.train;
  ReadRun(config, train);
  HADAL_RETURN_IF_ERROR(ReadModel(config.model(), train.model));
  HADAL_RETURN_IF_ERROR(ReadPipeline(config.pipeline(), train.model, train.pipeline));
  ReadOptimizer(config, train);
  HADAL_RETURN_IF_ERROR(ReadMuon(config.optimizer().muon(), train.optimizer.muon));
  HADAL_RETURN_IF_ERROR(ResolveFractions(config, train));
  HADAL_RETURN_IF_ERROR(CheckRate(train));
  options.warnings = Warnings(config, train);
  return options;
}

absl::Status CheckFieldsWithEffect(const config::RunConfig& config) {
  const config::Block& block = config.model().block();
  const bool turns = block.positions() == "rotary", windows = block.window() > 0;
  const bool cutoffs = config.model().adaptive_cutoffs_size() > 0;
  const std::string& schedule = config.learning_rate().schedule();
  const struct {
    const char* prefix;  // of the fields' paths
    bool is_read;
    const char* why_not;
  } groups[] = {{"model.block.rotary_", turns, "model.block.positions is not \"rotary\""},
                {"model.block.rotary_scaling_", block.rotary_scaling() != 1, "model.block.rotary_scaling is 1"},
                {"model.block.rotary_local_", windows, "model.block.window is 0"},
                {"model.block.global_every", windows, "model.block.window is 0"},
                {"model.block.initial_depth_", block.initial_deviation() > 0, "model.block.initial_deviation is 0"},
                {"model.adaptive_factor", cutoffs, "model.adaptive_cutoffs is not set"},
                {"model.adaptive_dropout", cutoffs, "model.adaptive_cutoffs is not set"},
                {"learning_rate.power", schedule == "polynomial", "learning_rate.schedule is not \"polynomial\""},
                {"learning_rate.decay_", schedule == "wsd", "learning_rate.schedule is not \"wsd\""},
                {"optimizer.muon.", config.optimizer().kind() == "muon", "optimizer.kind is not \"muon\""},
                {"health.loss_spike_window", config.health().has_loss_spike_deviations(),
                 "health.loss_spike_deviations is not set"},
                {"data.spec_augment.frequency_", config.data().spec_augment().has_frequency_masks(),
                 "data.spec_augment.frequency_masks is not set"},
                {"data.spec_augment.time_", config.data().spec_augment().has_time_masks(),
                 "data.spec_augment.time_masks is not set"},
                {"data.masking.", config.model().decoder_layers() == 0, "model.decoder_layers is not 0"}};
  return ForEachSetField(config, "", [&](const std::string& path, const ConfigMessage& message, const auto& field) {
    const std::unique_ptr<ConfigMessage> fresh(message.New());
    const std::string value = ValueText(message, field), standard = ValueText(*fresh, field);
    for (const auto& [prefix, is_read, why_not] : groups) {
      if (is_read || value == standard || !absl::StartsWith(path, prefix)) continue;
      return InvalidArgumentError(path, " = ", value, " has no effect: ", why_not, ". Leave it out, or set it to ",
                                  standard, ", the default.");
    }
    return absl::OkStatus();
  });
}

absl::Status CheckTrainable(const TrainOptions& options) {
  const ValidationOptions& validation = options.validation;
  const std::pair<bool, std::string> faults[] = {
      {options.train_data.empty(), "data.train is not set; give the prefix of a corpus made by `hadal prepare`"},
      {options.stop.steps == 0 && options.stop.epochs == 0 && options.stop.minutes == 0,
       "the run has no limit; set stop.steps, stop.epochs or stop.minutes"},
      {validation.every_steps > 0 && options.validation_data.empty(),
       absl::StrCat("validation.every_steps = ", validation.every_steps,
                    " needs data.validation, the prefix of a prepared corpus; 0 trains without validations")},
      {validation.bleu_sentences > 0 && !options.model.translates(),
       absl::StrCat("validation.bleu_sentences = ", validation.bleu_sentences, " needs translations, and ",
                    options.model.has_encoder() ? "model.decoder_layers = 0 is an encoder alone"
                                                : "model.encoder_layers = 0 is a language model",
                    "; set it to 0")},
      {validation.metric != ValidationMetric::kNll && validation.bleu_sentences == 0,
       absl::StrCat("validation.metric = \"", ToWord(kMetrics, validation.metric),
                    "\" is of translations; set validation.bleu_sentences")},
      {options.stop.patience > 0 && validation.every_steps == 0,
       absl::StrCat("stop.patience = ", options.stop.patience, " counts validations; set validation.every_steps")}};
  for (const auto& [is_fault, text] : faults) {
    if (is_fault) return InvalidArgumentError(text);
  }
  return absl::OkStatus();
}

absl::Status FollowCorpus(const CorpusManifest& corpus, TrainOptions& options) {
  ModelOptions& model = options.model;
  if (model.has_encoder() && model.sharing == EmbeddingSharing::kAll && !corpus.shares_vocabulary()) {
    return InvalidArgumentError(
        "model.sharing = \"all\" uses one embedding matrix and needs one vocabulary, but the corpus data.train = \"",
        options.train_data, "\" has two, ", corpus.source_vocabulary.file, " and ", corpus.target_vocabulary.file,
        ". Prepare it without --separate, or set model.sharing to \"decoder\" or \"none\".");
  }
  if (model.frame_width > 0 && model.frame_width != corpus.frame_width) {
    return InvalidArgumentError("model.frame_width = ", model.frame_width, ", but the corpus data.train = \"",
                                options.train_data, "\" ",
                                corpus.frame_width > 0 ? absl::StrCat("has frames of ", corpus.frame_width) : "is text",
                                ". Leave model.frame_width unset to use the corpus's.");
  }
  model.frame_width = corpus.frame_width;
  model.source_vocabulary = corpus.source_vocabulary.size;
  model.target_vocabulary = corpus.target_vocabulary.size;
  model.start_token = corpus.form.start_token;
  model.end_token = corpus.form.end_token;
  model.reserved_ids = corpus.form.reserved_ids;
  model.mask_token = corpus.mask_token;
  model.document_mask = corpus.form.document_mask;
  if (options.masking && corpus.special_tokens.empty()) {
    return InvalidArgumentError(
        "model.decoder_layers = 0 is an encoder alone, which predicts masked tokens, but the vocabulary of "
        "data.train = \"",
        options.train_data,
        "\" has no mask token. Prepare plain text with `hadal prepare --monolingual --mask-token`, or set "
        "model.decoder_layers to 1 or more.");
  }
  if (options.masking) {
    options.masking->mask_token = corpus.mask_token;
    options.masking->vocabulary = corpus.target_vocabulary.size;
    options.masking->special = corpus.special_tokens;
  }
  if (options.pipeline.decoder) options.pipeline.decoder->prefixes = corpus.target_tags();
  return absl::OkStatus();
}

}  // namespace hadal
