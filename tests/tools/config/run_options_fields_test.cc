// Every field of the config, and every word of it, arrives in the options; what they mean together is
// run_options_test.cc's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/tools/config/parsed_config.h"
#include "tools/config/config_schema.h"
#include "tools/config/config_value.h"
#include "tools/config/run_options.h"

namespace hadal {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// The schema's defaults and the structs' are written in two places.
TEST(RunOptionsFields, DefaultsAreThoseOfTheOptionStructs) {
  const RunOptions options = OptionsOf("");
  const TrainOptions& from_schema = options.train;
  const TrainOptions structs;
  EXPECT_THAT(options.warnings, IsEmpty());
  EXPECT_EQ(from_schema.seed, structs.seed);
  EXPECT_EQ(from_schema.precision, structs.precision);
  EXPECT_EQ(from_schema.model.encoder_layers, structs.model.encoder_layers);
  EXPECT_EQ(from_schema.model.decoder_layers, structs.model.decoder_layers);
  EXPECT_EQ(from_schema.model.d_model, structs.model.d_model);
  EXPECT_EQ(from_schema.model.d_ff, structs.model.d_ff);
  EXPECT_EQ(from_schema.model.heads, structs.model.heads);
  EXPECT_EQ(from_schema.model.max_positions, structs.model.max_positions);
  EXPECT_EQ(from_schema.model.sharing, structs.model.sharing);
  EXPECT_EQ(from_schema.model.dropout, structs.model.dropout);
  EXPECT_EQ(from_schema.model.attention_dropout, structs.model.attention_dropout);
  EXPECT_EQ(from_schema.model.activation_dropout, structs.model.activation_dropout);
  EXPECT_EQ(from_schema.model.label_smoothing, structs.model.label_smoothing);
  EXPECT_EQ(from_schema.model.adaptive_cutoffs.count, structs.model.adaptive_cutoffs.count);
  EXPECT_EQ(from_schema.model.adaptive_factor, structs.model.adaptive_factor);
  EXPECT_EQ(from_schema.model.adaptive_dropout, structs.model.adaptive_dropout);
  EXPECT_EQ(from_schema.model.frame_width, structs.model.frame_width);
  EXPECT_EQ(from_schema.model.front_end_channels, structs.model.front_end_channels);
  EXPECT_EQ(from_schema.model.base_width, structs.model.base_width);
  EXPECT_EQ(from_schema.model.branch_growth_updates, structs.model.branch_growth_updates);
  EXPECT_EQ(from_schema.batch.micro_batches, structs.batch.micro_batches);
  EXPECT_EQ(from_schema.batch.source_tokens, structs.batch.source_tokens);
  EXPECT_EQ(from_schema.batch.target_tokens, structs.batch.target_tokens);
  EXPECT_EQ(from_schema.pipeline.stages, structs.pipeline.stages);
  EXPECT_EQ(from_schema.pipeline.replicas, structs.pipeline.replicas);
  EXPECT_EQ(from_schema.pipeline.shard_optimizer_state, structs.pipeline.shard_optimizer_state);
  EXPECT_EQ(from_schema.pipeline.chunks, structs.pipeline.chunks);
  EXPECT_EQ(from_schema.pipeline.schedule, structs.pipeline.schedule);
  EXPECT_EQ(from_schema.pipeline.split, structs.pipeline.split);
  EXPECT_EQ(from_schema.pipeline.outstanding_sends, structs.pipeline.outstanding_sends);
  EXPECT_EQ(from_schema.pipeline.recompute_every, structs.pipeline.recompute_every);
  EXPECT_EQ(from_schema.pipeline.recompute_auto, structs.pipeline.recompute_auto);
  EXPECT_EQ(from_schema.pipeline.memory_limit_bytes, structs.pipeline.memory_limit_bytes);
  EXPECT_EQ(from_schema.pipeline.wait_timeout_seconds, structs.pipeline.wait_timeout_seconds);
  EXPECT_EQ(from_schema.pipeline.threads, structs.pipeline.threads);
  EXPECT_EQ(from_schema.pipeline.graphs, structs.pipeline.graphs);
  EXPECT_EQ(from_schema.optimizer.beta1, structs.optimizer.beta1);
  EXPECT_EQ(from_schema.optimizer.beta2, structs.optimizer.beta2);
  EXPECT_EQ(from_schema.optimizer.epsilon, structs.optimizer.epsilon);
  EXPECT_EQ(from_schema.optimizer.weight_decay, structs.optimizer.weight_decay);
  EXPECT_EQ(from_schema.optimizer.clip_norm, structs.optimizer.clip_norm);
  EXPECT_EQ(from_schema.optimizer.decays_vectors, structs.optimizer.decays_vectors);
  EXPECT_EQ(from_schema.rate.schedule, structs.rate.schedule);
  EXPECT_EQ(from_schema.rate.peak, structs.rate.peak);
  EXPECT_EQ(from_schema.rate.warmup_updates, structs.rate.warmup_updates);
  EXPECT_EQ(from_schema.rate.warmup_initial_rate, structs.rate.warmup_initial_rate);
  EXPECT_EQ(from_schema.rate.end_rate, structs.rate.end_rate);
  EXPECT_EQ(from_schema.rate.power, structs.rate.power);
  EXPECT_EQ(from_schema.max_left_out, structs.max_left_out);
  EXPECT_EQ(from_schema.sampling_temperature, structs.sampling_temperature);
  EXPECT_EQ(from_schema.stop.steps, structs.stop.steps);
  EXPECT_EQ(from_schema.stop.epochs, structs.stop.epochs);
  EXPECT_EQ(from_schema.stop.minutes, structs.stop.minutes);
  EXPECT_EQ(from_schema.stop.patience, structs.stop.patience);
  EXPECT_EQ(from_schema.validation.every_steps, structs.validation.every_steps);
  EXPECT_EQ(from_schema.validation.max_sentences, structs.validation.max_sentences);
  EXPECT_EQ(from_schema.validation.bleu_sentences, structs.validation.bleu_sentences);
  EXPECT_EQ(from_schema.validation.bleu_tokenizer, structs.validation.bleu_tokenizer);
  EXPECT_FALSE(from_schema.pipeline.decoder.has_value());
  EXPECT_EQ(from_schema.checkpoint.every_steps, structs.checkpoint.every_steps);
  EXPECT_EQ(from_schema.checkpoint.every_minutes, structs.checkpoint.every_minutes);
  EXPECT_EQ(from_schema.checkpoint.keep_last, structs.checkpoint.keep_last);
  EXPECT_EQ(from_schema.checkpoint.keep_every, structs.checkpoint.keep_every);
  EXPECT_EQ(from_schema.checkpoint.save_at_end, structs.checkpoint.save_at_end);
  EXPECT_EQ(from_schema.pipeline.save_buffer_bytes, structs.pipeline.save_buffer_bytes);
  EXPECT_EQ(from_schema.health.skipped_steps, structs.health.skipped_steps);
  EXPECT_EQ(from_schema.health.loss_spike.deviations, structs.health.loss_spike.deviations);
  EXPECT_EQ(from_schema.health.loss_spike.window, structs.health.loss_spike.window);
  EXPECT_EQ(from_schema.log_every_steps, structs.log_every_steps);
  EXPECT_EQ(from_schema.depth.enabled, structs.depth.enabled);
  EXPECT_EQ(from_schema.depth.dense_steps, structs.depth.dense_steps);
  EXPECT_EQ(from_schema.depth.per_decade, structs.depth.per_decade);
  EXPECT_EQ(from_schema.depth.probe_tokens, structs.depth.probe_tokens);
}

// Every field of a run, none with its default.
constexpr char kEveryField[] = R"(
    seed: 9
    device { precision: "bf16" }
    model { encoder_layers: 3 decoder_layers: 2 d_model: 48 d_ff: 96 heads: 4 max_positions: 77 sharing: "decoder"
            dropout: 0.2 attention_dropout: 0.3 activation_dropout: 0.4 label_smoothing: 0.05
            adaptive_cutoffs: [9, 17] adaptive_factor: 3 adaptive_dropout: 0.15
            frame_width: 40 front_end_channels: 128 base_width: 24
            residual { method: "branchnorm" growth_updates: 123 } }
    data { train: "t" validation: "v" max_left_out: 0.25 sampling_temperature: [1, 5]
           spec_augment { frequency_masks: 1 frequency_width: 13 time_masks: 3 time_width: 55 time_share: 0.5 } }
    batch { micro_batches: 7 source_tokens: 333 target_tokens: 444 }
    pipeline { stages: 2 chunks: 2 schedule: "interleaved_1f1b" split: [2, 5, 8] outstanding_sends: 3 recompute_auto: true
               memory_limit_bytes: 1234567890123 wait_timeout_seconds: 1.5 threads: 6 replicas: 3 optimizer_sharding: "none"
               placement: "stages_together" transport: "host" graphs: "off" }
    optimizer { beta1: 0.8 beta2: 0.95 epsilon: 1e-6 weight_decay: 0.01 clip_norm: 0.5 decay_of: "matrices" }
    learning_rate { schedule: "polynomial" peak: 0.001 warmup_updates: 11 warmup_initial_rate: 1e-5 end_rate: 1e-6 power: 2 }
    stop { steps: 5000 epochs: 1.5 minutes: 2.5 patience: 4 }
    validation { every_steps: 10 max_sentences: 20 bleu_sentences: 30 bleu_tokenizer: "zh" }
    decode { beam: 3 length_penalty: 0.7 max_length_a: 1.3 max_length_b: 14 no_repeat_ngram: 2 }
    checkpoint { every_steps: 40 every_minutes: 41 keep_last: 5 keep_every: 50 save_at_end: false buffer_mebibytes: 3 }
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
    if (path == "model.residual") continue;  // model_config_test
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

TEST(RunOptionsFields, EveryFieldOfTheModelArrives) {
  const TrainOptions train = OptionsOf(kEveryField).train;
  EXPECT_EQ(train.seed, 9u);
  EXPECT_EQ(train.precision, TrainingPrecision::kBf16);
  EXPECT_EQ(train.model.encoder_layers, 3);
  EXPECT_EQ(train.model.decoder_layers, 2);
  EXPECT_EQ(train.model.d_model, 48);
  EXPECT_EQ(train.model.d_ff, 96);
  EXPECT_EQ(train.model.heads, 4);
  EXPECT_EQ(train.model.max_positions, 77);
  EXPECT_EQ(train.model.sharing, EmbeddingSharing::kDecoder);
  EXPECT_EQ(train.model.adaptive_cutoffs.count, 2);
  EXPECT_EQ(train.model.adaptive_cutoffs.ids[1], 17);
  EXPECT_EQ(train.model.adaptive_factor, 3);
  EXPECT_EQ(train.model.adaptive_dropout, 0.15);
  EXPECT_EQ(train.model.source_vocabulary, 0) << "comes from the corpus";
  EXPECT_EQ(train.model.dropout, 0.2);
  EXPECT_EQ(train.model.attention_dropout, 0.3);
  EXPECT_EQ(train.model.activation_dropout, 0.4);
  EXPECT_EQ(train.model.label_smoothing, 0.05);
  EXPECT_EQ(train.model.frame_width, 40);
  EXPECT_EQ(train.model.front_end_channels, 128);
  EXPECT_EQ(train.model.base_width, 24);
  EXPECT_EQ(train.model.branch_growth, BranchGrowth::kLinear);
  EXPECT_EQ(train.model.branch_growth_updates, 123);
}

TEST(RunOptionsFields, EveryFieldOfDataAndPipelineArrives) {
  const TrainOptions train = OptionsOf(kEveryField).train;
  EXPECT_EQ(train.train_data, "t");
  EXPECT_EQ(train.validation_data, "v");
  EXPECT_EQ(train.max_left_out, 0.25);
  EXPECT_THAT(train.sampling_temperature, ElementsAre(1, 5));
  EXPECT_EQ(train.spec_augment.frequency_masks, 1);
  EXPECT_EQ(train.spec_augment.frequency_width, 13);
  EXPECT_EQ(train.spec_augment.time_masks, 3);
  EXPECT_EQ(train.spec_augment.time_width, 55);
  EXPECT_EQ(train.spec_augment.time_share, 0.5);
  EXPECT_EQ(train.batch.micro_batches, 7);
  EXPECT_EQ(train.batch.source_tokens, 333);
  EXPECT_EQ(train.batch.target_tokens, 444);
  EXPECT_EQ(train.pipeline.stages, 2);
  EXPECT_EQ(train.pipeline.replicas, 3);
  EXPECT_EQ(train.pipeline.placement, Placement::kStagesTogether);
  EXPECT_FALSE(train.pipeline.shard_optimizer_state);
  EXPECT_EQ(train.pipeline.transport, Transport::kHost);
  EXPECT_EQ(train.pipeline.graphs, GraphMode::kOff);
  EXPECT_EQ(train.pipeline.chunks, 2);
  EXPECT_EQ(train.pipeline.schedule, ScheduleKind::kInterleaved1F1B);
  EXPECT_THAT(train.pipeline.split, ElementsAre(2, 5, 8));
  EXPECT_EQ(train.pipeline.outstanding_sends, 3);
  EXPECT_EQ(train.pipeline.recompute_every, 0);
  EXPECT_TRUE(train.pipeline.recompute_auto);
  EXPECT_EQ(train.pipeline.memory_limit_bytes, 1234567890123);
  EXPECT_EQ(train.pipeline.wait_timeout_seconds, 1.5);
  EXPECT_EQ(train.pipeline.threads, 6);
}

TEST(RunOptionsFields, EveryFieldOfTheOptimizerArrives) {
  const TrainOptions train = OptionsOf(kEveryField).train;
  EXPECT_EQ(train.optimizer.beta1, 0.8);
  EXPECT_EQ(train.optimizer.beta2, 0.95);
  EXPECT_EQ(train.optimizer.epsilon, 1e-6);
  EXPECT_EQ(train.optimizer.weight_decay, 0.01);
  EXPECT_EQ(train.optimizer.clip_norm, 0.5);
  EXPECT_FALSE(train.optimizer.decays_vectors);
  EXPECT_EQ(train.rate.schedule, RateSchedule::kPolynomial);
  EXPECT_EQ(train.rate.peak, 0.001);
  EXPECT_EQ(train.rate.warmup_updates, 11);
  EXPECT_EQ(train.rate.warmup_initial_rate, 1e-5);
  EXPECT_EQ(train.rate.end_rate, 1e-6);
  EXPECT_EQ(train.rate.power, 2);
}

TEST(RunOptionsFields, EveryFieldAroundTheStepsArrives) {
  const TrainOptions train = OptionsOf(kEveryField).train;
  EXPECT_EQ(train.stop.steps, 5000);
  EXPECT_EQ(train.stop.epochs, 1.5);
  EXPECT_EQ(train.stop.minutes, 2.5);
  EXPECT_EQ(train.stop.patience, 4);
  EXPECT_EQ(train.validation.every_steps, 10);
  EXPECT_EQ(train.validation.max_sentences, 20);
  EXPECT_EQ(train.validation.bleu_sentences, 30);
  EXPECT_EQ(train.validation.bleu_tokenizer, BleuTokenizer::kZh);
  ASSERT_TRUE(train.pipeline.decoder.has_value());
  EXPECT_EQ(train.pipeline.decoder->beam.beam, 3);
  EXPECT_EQ(train.pipeline.decoder->beam.length_penalty, 0.7);
  EXPECT_EQ(train.pipeline.decoder->beam.max_length_a, 1.3);
  EXPECT_EQ(train.pipeline.decoder->beam.max_length_b, 14);
  EXPECT_EQ(train.pipeline.decoder->beam.no_repeat_ngram, 2);
  EXPECT_EQ(train.pipeline.decoder->sentences, 30);
  EXPECT_EQ(train.checkpoint.every_steps, 40);
  EXPECT_EQ(train.checkpoint.every_minutes, 41);
  EXPECT_EQ(train.checkpoint.keep_last, 5);
  EXPECT_EQ(train.checkpoint.keep_every, 50);
  EXPECT_FALSE(train.checkpoint.save_at_end);
  EXPECT_EQ(train.pipeline.save_buffer_bytes, int64_t{3} << 20);
  EXPECT_EQ(train.health.skipped_steps, 9);
  EXPECT_EQ(train.health.loss_spike.deviations, 4.5);
  EXPECT_EQ(train.health.loss_spike.window, 33);
  EXPECT_EQ(train.log_every_steps, 8);
  EXPECT_FALSE(train.depth.enabled);
  EXPECT_EQ(train.depth.dense_steps, 7);
  EXPECT_EQ(train.depth.per_decade, 6);
  EXPECT_EQ(train.depth.probe_tokens, 5);
}

TEST(RunOptionsFields, EveryWordOfTheSchemaHasAMeaning) {
  for (const char* path :
       {"model.sharing", "model.residual.method", "model.residual.distribution", "model.residual.branch_growth",
        "model.residual.encoder.norm", "model.residual.encoder.depth_init", "pipeline.schedule", "pipeline.placement",
        "pipeline.optimizer_sharding", "pipeline.transport", "pipeline.graphs", "learning_rate.schedule",
        "device.precision"}) {
    for (const std::string& word : ValuesOf(*FindField(path).value().back())) {
      config::RunConfig config = Parsed("stop { steps: 5000 }");
      ASSERT_TRUE(ApplyOverride(std::string(path) + "=" + word, config).ok());
      EXPECT_TRUE(MakeRunOptions(config).ok()) << path << " " << word;
    }
  }
}

}  // namespace
}  // namespace hadal
