// Every field of the config, and every word of it, arrives in the options; what they mean together is
// run_options_test.cc's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "tests/tools/config/parsed_config.h"
#include "tools/config/config_schema.h"
#include "tools/config/config_value.h"
#include "tools/config/run_options.h"

namespace hadal {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// The fields whose number is an option as it is, and these options in the same order.
constexpr char kNumbers[] = R"(
    seed model.encoder_layers model.decoder_layers model.d_model model.d_ff model.heads model.max_positions
    model.dropout model.attention_dropout model.activation_dropout model.label_smoothing model.z_loss model.adaptive_factor
    model.adaptive_dropout model.frame_width model.front_end_channels model.base_width
    device.overlap_weight_gradients device.weight_gradient_batch batch.micro_batches
    batch.source_tokens batch.target_tokens batch.sum_groups pipeline.stages pipeline.chunks pipeline.outstanding_sends
    pipeline.recompute_auto pipeline.memory_limit_bytes pipeline.wait_timeout_seconds pipeline.threads
    pipeline.replicas optimizer.beta1 optimizer.beta2 optimizer.epsilon optimizer.weight_decay optimizer.clip_norm
    stop.steps stop.epochs stop.minutes stop.patience validation.every_steps validation.max_sentences
    validation.bleu_sentences checkpoint.every_steps checkpoint.every_minutes checkpoint.keep_last
    checkpoint.keep_every checkpoint.keep_best checkpoint.save_at_end checkpoint.memory_every_steps health.skipped_steps learning_rate.peak
    learning_rate.warmup_updates learning_rate.warmup_initial_rate learning_rate.end_rate learning_rate.power
    data.max_left_out health.loss_spike_deviations health.loss_spike_window logging.every_steps
    instruments.enabled instruments.dense_steps instruments.per_decade instruments.probe_tokens)";

std::vector<std::string> Paths() { return absl::StrSplit(kNumbers, absl::ByAnyChar(" \n"), absl::SkipEmpty()); }

template <typename... Number>
std::vector<double> Doubles(Number... numbers) {
  return {static_cast<double>(numbers)...};
}

std::vector<double> Numbers(const TrainOptions& o) {
  return Doubles(
      o.seed, o.model.encoder_layers, o.model.decoder_layers, o.model.d_model, o.model.d_ff, o.model.heads,
      o.model.max_positions, o.model.dropout, o.model.attention_dropout, o.model.activation_dropout,
      o.model.label_smoothing, o.model.z_loss, o.model.adaptive_factor, o.model.adaptive_dropout, o.model.frame_width,
      o.model.front_end_channels, o.model.base_width, o.pipeline.overlap_weight_gradients, o.weight_gradient_batch,
      o.batch.micro_batches, o.batch.source_tokens, o.batch.target_tokens, o.batch.sum_groups, o.pipeline.stages,
      o.pipeline.chunks, o.pipeline.outstanding_sends, o.pipeline.recompute_auto, o.pipeline.memory_limit_bytes,
      o.pipeline.wait_timeout_seconds, o.pipeline.threads, o.pipeline.replicas, o.optimizer.beta1, o.optimizer.beta2,
      o.optimizer.epsilon, o.optimizer.weight_decay, o.optimizer.clip_norm, o.stop.steps, o.stop.epochs, o.stop.minutes,
      o.stop.patience, o.validation.every_steps, o.validation.max_sentences, o.validation.bleu_sentences,
      o.checkpoint.every_steps, o.checkpoint.every_minutes, o.checkpoint.keep_last, o.checkpoint.keep_every,
      o.checkpoint.keep_best, o.checkpoint.save_at_end, o.checkpoint.memory_every_steps, o.health.skipped_steps,
      o.rate.peak, o.rate.warmup_updates, o.rate.warmup_initial_rate, o.rate.end_rate, o.rate.power, o.max_left_out,
      o.health.loss_spike.deviations, o.health.loss_spike.window, o.log_every_steps, o.depth.enabled,
      o.depth.dense_steps, o.depth.per_decade, o.depth.probe_tokens);
}

// The schema's defaults and the structs' are written in two places.
TEST(RunOptionsFields, DefaultsAreThoseOfTheOptionStructs) {
  const RunOptions options = OptionsOf("");
  const TrainOptions& from_schema = options.train;
  const TrainOptions structs;
  EXPECT_THAT(options.warnings, IsEmpty());
  const std::vector<double> numbers = Numbers(from_schema), expected = Numbers(structs);
  for (size_t i = 0; i < numbers.size(); ++i) EXPECT_EQ(numbers[i], expected[i]) << Paths().at(i);
  EXPECT_EQ(from_schema.precision, structs.precision);
  EXPECT_EQ(from_schema.model.sharing, structs.model.sharing);
  EXPECT_EQ(from_schema.model.adaptive_cutoffs.count, structs.model.adaptive_cutoffs.count);
  EXPECT_EQ(from_schema.model.branch_growth_updates, structs.model.branch_growth_updates);
  EXPECT_EQ(from_schema.pipeline.shard_optimizer_state, structs.pipeline.shard_optimizer_state);
  EXPECT_EQ(from_schema.pipeline.schedule, structs.pipeline.schedule);
  EXPECT_EQ(from_schema.pipeline.split, structs.pipeline.split);
  EXPECT_EQ(from_schema.pipeline.recompute_every, structs.pipeline.recompute_every);
  EXPECT_EQ(from_schema.pipeline.graphs, structs.pipeline.graphs);
  EXPECT_EQ(from_schema.optimizer.decays_vectors, structs.optimizer.decays_vectors);
  EXPECT_EQ(from_schema.optimizer.kind, structs.optimizer.kind);
  EXPECT_EQ(from_schema.optimizer.muon, structs.optimizer.muon);
  EXPECT_EQ(from_schema.rate.schedule, structs.rate.schedule);
  EXPECT_EQ(from_schema.sampling_temperature, structs.sampling_temperature);
  EXPECT_EQ(from_schema.validation.bleu_tokenizer, structs.validation.bleu_tokenizer);
  EXPECT_EQ(from_schema.validation.metric, structs.validation.metric);
  EXPECT_FALSE(from_schema.pipeline.decoder.has_value());
  EXPECT_EQ(from_schema.pipeline.save_buffer_bytes, structs.pipeline.save_buffer_bytes);
  EXPECT_EQ(from_schema.checkpoint.memory_folder, structs.checkpoint.memory_folder);
}

// Every field of a run, none with its default.
constexpr char kEveryField[] = R"(
    seed: 9
    device { precision: "bf16" overlap_weight_gradients: true weight_gradient_batch: 3 }
    model { encoder_layers: 3 decoder_layers: 2 d_model: 48 d_ff: 96 heads: 4 max_positions: 77 sharing: "decoder"
            dropout: 0.2 attention_dropout: 0.3 activation_dropout: 0.4 label_smoothing: 0.05 z_loss: 0.001
            adaptive_cutoffs: [9, 17] adaptive_factor: 3 adaptive_dropout: 0.15
            frame_width: 40 front_end_channels: 128 base_width: 24
            block { norm: "rms" norm_epsilon: 1e-6 norm_shift: false activation: "gelu" gated: true biases: "qkv"
                    positions: "rotary" rotary_theta: 500 rotary_share: 0.5 kv_heads: 2 head_width: 16 scale_embedding: false
                    query_key_norm: true attention_gate: true window: 12 global_every: 3 rotary_local_theta: 50
                    rotary_scaling: 4 rotary_scaling_positions: 64 first_norm: false
                    embedding_norm: true initial_deviation: 0.02 initial_depth_factor: true }
            residual { method: "branchnorm" growth_updates: 123 } }
    data { train: "t" validation: "v" max_left_out: 0.25 sampling_temperature: [1, 5]
           spec_augment { frequency_masks: 1 frequency_width: 13 time_masks: 3 time_width: 55 time_share: 0.5 }
           masking { share: 0.25 replacement: "mask" whole_words: true } }
    batch { micro_batches: 7 source_tokens: 333 target_tokens: 444 sum_groups: 6 }
    pipeline { stages: 2 chunks: 2 schedule: "interleaved_1f1b" split: [2, 5, 8] outstanding_sends: 3 recompute_auto: true
               memory_limit_bytes: 1234567890123 wait_timeout_seconds: 1.5 threads: 6 replicas: 3 optimizer_sharding: "none"
               placement: "stages_together" transport: "host" graphs: "off" }
    optimizer { beta1: 0.8 beta2: 0.95 epsilon: 1e-6 weight_decay: 0.01 clip_norm: 0.5 decay_of: "matrices" frozen: "encoder.*" kind: "muon"
                muon { momentum: 0.9 nesterov: false steps: 6 coefficients: [2, -1.5, 0.5] scale: "original" rate_factor: 40 } }
    learning_rate { schedule: "polynomial" peak: 0.001 warmup_updates: 11 warmup_initial_rate: 1e-5 end_rate: 1e-6 power: 2
                    decay_fraction: 0.1 decay_shape: "cosine" }
    stop { steps: 5000 epochs: 1.5 minutes: 2.5 patience: 4 }
    validation { every_steps: 10 max_sentences: 20 bleu_sentences: 30 bleu_tokenizer: "zh" metric: "chrf" }
    decode { beam: 3 length_penalty: 0.7 max_length_a: 1.3 max_length_b: 14 no_repeat_ngram: 2 }
    checkpoint { every_steps: 40 every_minutes: 41 keep_last: 5 keep_every: 50 keep_best: 6 save_at_end: false buffer_mebibytes: 3
                 memory_every_steps: 13 memory_folder: "m" }
    health { skipped_steps: 9 loss_spike_deviations: 4.5 loss_spike_window: 33 }
    logging { every_steps: 8 }
    instruments { enabled: false dense_steps: 7 per_decade: 6 probe_tokens: 5 })";

// Appends the fields of `message` that are not set or have their default. A member of a oneof stands for the others.
void CollectDefaults(const ConfigMessage& message, const std::string& parent, std::vector<std::string>& paths) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  const std::unique_ptr<ConfigMessage> fresh(message.New());
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor& field = *message.GetDescriptor()->field(i);
    const std::string path = FieldPath(parent, field.name());
    if (path == "model.residual") continue;  // run_options_test
    if (IsMessage(field)) {
      CollectDefaults(reflection.GetMessage(message, &field), path, paths);
      continue;
    }
    const auto* alternatives = field.real_containing_oneof();
    const bool by_another =
        alternatives != nullptr && reflection.HasOneof(message, alternatives) && !reflection.HasField(message, &field);
    if (!by_another && ValueText(message, field) == ValueText(*fresh, field)) paths.push_back(path);
  }
}

TEST(RunOptionsFields, EveryFieldIsTried) {
  std::vector<std::string> defaults;
  CollectDefaults(Parsed(kEveryField), "", defaults);
  EXPECT_THAT(defaults, IsEmpty()) << "a field that arrives nowhere would not be noticed";
}

// The value of a field of kEveryField.
double NumberAt(const ConfigMessage& config, const std::string& path) {
  const ConfigMessage* message = &config;
  const std::vector<const FieldDescriptor*> fields = FindField(path).value();
  for (size_t i = 0; i + 1 < fields.size(); ++i) message = &message->GetReflection()->GetMessage(*message, fields[i]);
  const std::string text = ValueText(*message, *fields.back());
  return text == "true" || text == "false" ? (text == "true" ? 1 : 0) : std::stod(text);
}

TEST(RunOptionsFields, EveryNumberArrives) {
  const config::RunConfig config = Parsed(kEveryField);
  const std::vector<double> numbers = Numbers(OptionsOf(kEveryField).train);
  const std::vector<std::string> paths = Paths();
  ASSERT_EQ(numbers.size(), paths.size());
  for (size_t i = 0; i < numbers.size(); ++i) EXPECT_EQ(numbers[i], NumberAt(config, paths[i])) << paths[i];
}

TEST(RunOptionsFields, EveryOtherFieldArrives) {
  const TrainOptions train = OptionsOf(kEveryField).train;
  EXPECT_EQ(train.precision, TrainingPrecision::kBf16);
  EXPECT_EQ(train.model.sharing, EmbeddingSharing::kDecoder);
  EXPECT_EQ(train.model.adaptive_cutoffs.count, 2);
  EXPECT_EQ(train.model.adaptive_cutoffs.ids[1], 17);
  EXPECT_EQ(train.model.source_vocabulary, 0) << "comes from the corpus";
  EXPECT_EQ(train.model.branch_growth, BranchGrowth::kLinear);
  EXPECT_EQ(train.model.branch_growth_updates, 123);
  EXPECT_EQ(train.train_data, "t");
  EXPECT_EQ(train.validation_data, "v");
  EXPECT_THAT(train.sampling_temperature, ElementsAre(1, 5));
  EXPECT_EQ(train.spec_augment.frequency_masks, 1);
  EXPECT_EQ(train.spec_augment.frequency_width, 13);
  EXPECT_EQ(train.spec_augment.time_masks, 3);
  EXPECT_EQ(train.spec_augment.time_width, 55);
  EXPECT_EQ(train.spec_augment.time_share, 0.5);
  EXPECT_EQ(train.pipeline.placement, Placement::kStagesTogether);
  EXPECT_FALSE(train.pipeline.shard_optimizer_state);
  EXPECT_EQ(train.pipeline.transport, Transport::kHost);
  EXPECT_EQ(train.pipeline.graphs, GraphMode::kOff);
  EXPECT_EQ(train.pipeline.schedule, ScheduleKind::kInterleaved1F1B);
  EXPECT_THAT(train.pipeline.split, ElementsAre(2, 5, 8));
  EXPECT_EQ(train.pipeline.recompute_every, 0);
  EXPECT_FALSE(train.optimizer.decays_vectors);
  EXPECT_THAT(train.frozen, ElementsAre("encoder.*"));
  EXPECT_EQ(train.optimizer.kind, OptimizerKind::kMuon);
  EXPECT_EQ(train.optimizer.muon, (MuonOptions{.momentum = 0.9,
                                               .nesterov = false,
                                               .iteration = {.steps = 6, .a = 2, .b = -1.5, .c = 0.5},
                                               .scale = MuonScale::kOriginal,
                                               .rate_factor = 40}));
  EXPECT_EQ(train.validation.metric, ValidationMetric::kChrf);
  EXPECT_EQ(train.model.block, (Block{.norm = NormKind::kRms,
                                      .norm_epsilon = 1e-6,
                                      .norm_shift = false,
                                      .activation = Activation::kGelu,
                                      .gated = true,
                                      .biases = Biases::kQkv,
                                      .positions = Positions::kRotary,
                                      .rotary_theta = 500,
                                      .rotary_share = 0.5,
                                      .kv_heads = 2,
                                      .head_width = 16,
                                      .scale_embedding = false,
                                      .query_key_norm = true,
                                      .attention_gate = true,
                                      .window = 12,
                                      .global_every = 3,
                                      .rotary_local_theta = 50,
                                      .rotary_scaling = 4,
                                      .rotary_scaling_positions = 64,
                                      .first_norm = false,
                                      .embedding_norm = true,
                                      .initial_deviation = 0.02,
                                      .initial_depth_factor = true}));
  EXPECT_EQ(train.rate.schedule, RateSchedule::kPolynomial);
  EXPECT_EQ(train.rate.decay_updates, 500);
  EXPECT_EQ(train.rate.decay_shape, DecayShape::kCosine);
  EXPECT_EQ(train.validation.bleu_tokenizer, BleuTokenizer::kZh);
  ASSERT_TRUE(train.pipeline.decoder.has_value());
  EXPECT_EQ(train.pipeline.decoder->beam.beam, 3);
  EXPECT_EQ(train.pipeline.decoder->beam.length_penalty, 0.7);
  EXPECT_EQ(train.pipeline.decoder->beam.max_length_a, 1.3);
  EXPECT_EQ(train.pipeline.decoder->beam.max_length_b, 14);
  EXPECT_EQ(train.pipeline.decoder->beam.no_repeat_ngram, 2);
  EXPECT_EQ(train.pipeline.decoder->sentences, 30);
  EXPECT_EQ(train.pipeline.save_buffer_bytes, int64_t{3} << 20);
  EXPECT_EQ(train.checkpoint.memory_folder, "m");
}

TEST(RunOptionsFields, EveryWordOfTheSchemaHasAMeaning) {
  for (const char* path :
       {"model.sharing", "model.residual.method", "model.residual.distribution", "model.residual.branch_growth",
        "model.residual.encoder.norm", "model.residual.encoder.depth_init", "model.block.norm",
        "model.block.activation", "model.block.biases", "model.block.positions", "learning_rate.decay_shape",
        "pipeline.schedule", "pipeline.placement", "pipeline.optimizer_sharding", "pipeline.transport",
        "pipeline.graphs", "learning_rate.schedule", "device.precision"}) {
    for (const std::string& word : ValuesOf(*FindField(path).value().back())) {
      config::RunConfig config = Parsed("stop { steps: 5000 } learning_rate { decay_updates: 500 }");
      ASSERT_TRUE(ApplyOverride(std::string(path) + "=" + word, config).ok());
      EXPECT_TRUE(MakeRunOptions(config).ok()) << path << " " << word;
    }
  }
}

}  // namespace
}  // namespace hadal
