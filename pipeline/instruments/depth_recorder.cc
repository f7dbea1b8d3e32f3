#include "pipeline/instruments/depth_recorder.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/bytes.h"
#include "runtime/clock.h"
#include "runtime/crc32c.h"
#include "runtime/data/sampling_order.h"
#include "runtime/files.h"
#include "runtime/run_directory.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

constexpr char kTensorName[] = "first_output";
constexpr char kChecksumKey[] = "crc32c";  // of the tensor's bytes

std::string Checksum(const std::vector<float>& values) {
  const std::string_view bytes = AsBytes(values);
  return absl::StrCat(absl::Hex(Crc32c(bytes.data(), bytes.size()), absl::kZeroPad8));
}

// How many of the points dense·10^(k / per_decade), k ≥ 0, are at most `step`.  The sum keeps whole decades on their
// side of a rounding.
int64_t PointsUpTo(double dense, int32_t per_decade, int64_t step) {
  const double position = std::log10(static_cast<double>(step) / dense) * per_decade;
  return position < 0 ? 0 : 1 + static_cast<int64_t>(std::floor(position + 1e-9));
}

}  // namespace

absl::StatusOr<DepthProbe> DepthProbe::Create(const TrainOptions& options, const ModelPlan& plan,
                                              const Corpus& corpus) {
  DepthProbe probe(plan, JoinPath(options.run_directory, kDepthProbeName));
  probe.seed_ = options.seed;
  const int64_t tokens = options.depth.probe_tokens;
  BatchCapacity capacity{.source_rows = std::min<int64_t>(tokens, options.batch.source_tokens),
                         .target_rows = std::min<int64_t>(tokens, options.batch.target_tokens),
                         .sentence_rows = options.model.max_positions};
  absl::StatusOr<ValidationBatches> made = MakeValidationBatches(corpus, capacity, tokens, options.masking);
  if (!made.ok()) {  // all sentences are longer than the probe: one of them, then
    capacity.source_rows = options.batch.source_tokens;
    capacity.target_rows = options.batch.target_tokens;
    made = MakeValidationBatches(corpus, capacity, 1, options.masking);
  }
  HADAL_RETURN_IF_ERROR(made.status());
  probe.batches_.push_back(std::move(made->batches.front()));
  probe.statistics_ = std::make_unique<DepthStatistics>(
      plan, ActivationCapacity{.source_rows = capacity.source_rows, .target_rows = capacity.target_rows},
      std::initializer_list<DepthTensor>{DepthTensor::kNormInput, DepthTensor::kHidden, DepthTensor::kOutput,
                                         DepthTensor::kSecondStream, DepthTensor::kModelOutput});
  return probe;
}

absl::Status DepthProbe::Run(Engine& engine, int64_t update) {
  statistics_->Clear();
  engine.Observe(statistics_.get());
  absl::Status status = engine.Evaluate(batches_, {.seed = seed_, .update = update, .training = false}).status();
  engine.Observe(nullptr);
  return status;
}

absl::Status DepthProbe::KeepFirstOutput(Collectives& collectives) {
  first_output_ = statistics_->model_output();
  return collectives.AllOk(first_output_.empty() ? absl::OkStatus() : Write(), "keeping the probe's first output");
}

absl::Status DepthProbe::LoadFirstOutput(Engine& engine, Collectives& collectives) {
  return collectives.AllOk(KeepsOutput(engine) ? Read() : absl::OkStatus(), "reading the probe's first output");
}

bool DepthProbe::KeepsOutput(Engine& engine) const {
  if (engine.grid().replica() != 0) return false;
  for (int c = 0; c < engine.stage().chunks(); ++c) {
    if (engine.stage().chunk(c).spec().last > plan_->output_head()) return true;
  }
  return false;
}

double DepthProbe::ChangeSquares() const {
  const std::vector<float>& now = statistics_->model_output();
  if (now.size() != first_output_.size()) return 0;
  double sum = 0;
  for (size_t i = 0; i < now.size(); ++i) {
    const double change = static_cast<double>(now[i]) - first_output_[i];
    sum += change * change;
  }
  return sum;
}

int64_t DepthProbe::output_rows() const { return static_cast<int64_t>(first_output_.size()) / plan_->options.d_model; }

// What the output is a function of, besides the weights; and its checksum.
SafetensorsMetadata DepthProbe::Identity(const std::vector<float>& output) const {
  const PackedBatch& batch = batches_.front();
  std::string tokens;
  for (const std::vector<int32_t>* list :
       {&batch.source, &batch.target_input, &batch.source_offsets, &batch.target_offsets}) {
    absl::StrAppend(&tokens, absl::StrJoin(*list, " "), "\n");
  }
  if (!batch.frames.empty()) absl::StrAppend(&tokens, Checksum(batch.frames), "\n");
  return {{"model", absl::StrCat(absl::Hex(plan_->Hash()))},
          {"probe", absl::StrCat(absl::Hex(Crc32c(tokens.data(), tokens.size())))},
          {kChecksumKey, Checksum(output)}};
}

absl::Status DepthProbe::Write() const {
  HADAL_RETURN_IF_ERROR(MakeDirectories(DirectoryName(path_)));
  const std::string unfinished = path_ + ".new";
  HADAL_RETURN_IF_ERROR(RemoveTree(unfinished));
  const int64_t d = plan_->options.d_model;
  HADAL_ASSIGN_OR_RETURN(SafetensorsWriter writer,
                         SafetensorsWriter::Create(unfinished, {{.name = kTensorName, .shape = {output_rows(), d}}},
                                                   Identity(first_output_)));
  HADAL_RETURN_IF_ERROR(writer.Append(AsBytes(first_output_)));
  HADAL_RETURN_IF_ERROR(writer.Finish().status());
  return RenamePath(unfinished, path_);
}

absl::Status DepthProbe::Read() {
  const std::string run_directory = DirectoryName(path_);
  HADAL_ASSIGN_OR_RETURN(const FileDescriptor parent, OpenDirectory(run_directory));
  HADAL_ASSIGN_OR_RETURN(FileDescriptor file, OpenFileIn(parent, run_directory, kDepthProbeName));
  HADAL_ASSIGN_OR_RETURN(const SafetensorsReader reader,
                         SafetensorsReader::Open(path_, std::make_shared<const FileDescriptor>(std::move(file))));
  const PackedBatch& batch = batches_.front();
  const int64_t rows = plan_->options.has_decoder() ? batch.target_rows() : batch.source_rows();
  const int64_t d = plan_->options.d_model;
  const int32_t tensor = reader.Find(kTensorName);
  const bool fits = tensor >= 0 && reader.tensors()[tensor].type == SafetensorsType::kF32 &&
                    reader.tensors()[tensor].shape == std::vector<int64_t>{rows, d};
  if (!fits) return FailedPreconditionError(path_, ": is of another model or another probe");
  std::vector<float> output(rows * d);
  HADAL_RETURN_IF_ERROR(reader.Read(tensor, 0, reader.tensors()[tensor].bytes(), output.data()));
  SafetensorsMetadata written = reader.metadata(), expected = Identity(output);
  if (written[kChecksumKey] != expected[kChecksumKey]) {
    return DataLossError(path_, ": is damaged: the CRC32C of its tensor is ", expected[kChecksumKey], ", it says \"",
                         written[kChecksumKey], "\"");
  }
  if (written != expected) return FailedPreconditionError(path_, ": is of another model or another probe");
  first_output_ = std::move(output);
  return absl::OkStatus();
}

bool IsRecordingStep(const DepthOptions& options, int64_t step) {
  if (!options.enabled) return false;
  if (step < options.dense_steps) return true;
  if (options.per_decade == 0 || step == 0) return false;
  const double dense = static_cast<double>(std::max<int64_t>(options.dense_steps, 1));
  return PointsUpTo(dense, options.per_decade, step) > PointsUpTo(dense, options.per_decade, step - 1);
}

namespace {

constexpr float kNone = std::numeric_limits<float>::quiet_NaN();
constexpr size_t kHeadValues = 2;  // of ‖ΔF‖: squares, rows

// A tensor that is not finite gives an infinite value; NaN says that there is no tensor.
float Finite(double value) { return std::isnan(value) ? INFINITY : static_cast<float>(value); }

// A transfer's error ends the run; a file's only what depends on the file.
bool IsTransferError(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

}  // namespace

struct DepthRecorder::SublayerSums {
  UpdateSize update;
  TensorSums output_gradient, norm_output_gradient, norm_input_gradient;  // of the step
  TensorSums output, norm_input, hidden, second_stream;                   // of the probe
};

DepthRecorder::DepthRecorder(const TrainOptions& options, const ModelPlan& plan, const PipelineLayout& pipeline,
                             Engine& engine, Communicator& world, absl::Duration timeout)
    : options_(options.depth),
      plan_(plan),
      engine_(engine),
      collectives_(world, timeout),
      own_sublayers_(pipeline.SublayersOf(engine.grid().stage())),
      gradients_(plan, pipeline.capacity,
                 {DepthTensor::kOutputGradient, DepthTensor::kNormOutputGradient, DepthTensor::kNormInputGradient}) {
  update_sizes_.reserve(engine.state().updated().size());
}

absl::StatusOr<std::unique_ptr<DepthRecorder>> DepthRecorder::Create(const TrainOptions& options, const ModelPlan& plan,
                                                                     const PipelineLayout& pipeline,
                                                                     const Corpus& corpus, Engine& engine,
                                                                     Communicator& world, absl::Duration timeout) {
  std::unique_ptr<DepthRecorder> recorder(new DepthRecorder(options, plan, pipeline, engine, world, timeout));
  if (options.depth.probe_tokens > 0) {
    HADAL_ASSIGN_OR_RETURN(recorder->probe_, DepthProbe::Create(options, plan, corpus));
  }
  return recorder;
}

absl::StatusOr<std::string> DepthRecorder::Begin(int64_t first_step, int64_t growth_update) {
  if (!probe_) return std::string();
  absl::Status status;
  if (first_step == 0) {
    HADAL_RETURN_IF_ERROR(probe_->Run(engine_, std::max<int64_t>(growth_update, 1)));
    status = probe_->KeepFirstOutput(collectives_);
  } else {
    status = probe_->LoadFirstOutput(engine_, collectives_);
  }
  if (IsTransferError(status)) return status;
  knows_first_output_ = status.ok() || first_step == 0;  // a file that could not be written is missed at the next start
  if (status.ok()) return std::string();
  return absl::StrCat(
      "the model's change since its first weights (model_update) ",
      first_step == 0 ? "will not be recorded after a resume: " : "is not recorded: ", status.message());
}

void DepthRecorder::BeforeStep(int64_t step, UpdateSettings& settings) {
  recording_ = IsRecordingStep(options_, step);
  engine_.Observe(recording_ ? &gradients_ : nullptr);
  if (!recording_) return;
  gradients_.Clear();
  update_sizes_.clear();
  settings.sizes = &update_sizes_;
}

std::vector<double> DepthRecorder::Mine() const {
  std::vector<UpdateSize> updates(plan_.sublayers.size());
  const std::span<const StateSlice> slices = engine_.state().updated();
  for (size_t i = 0; i < update_sizes_.size(); ++i) {
    if (slices[i].owner != engine_.grid().replica()) continue;  // another replica reports it
    UpdateSize& sum = updates[plan_.parameters[slices[i].parameter].sublayer];
    sum.change_squares += update_sizes_[i].change_squares;
    sum.weight_squares += update_sizes_[i].weight_squares;
  }
  std::vector<double> mine{0, 0};
  if (probe_ && knows_first_output_) mine = {probe_->ChangeSquares(), static_cast<double>(probe_->output_rows())};
  const auto append = [&mine](const TensorSums& sums) {
    mine.insert(mine.end(), {sums.squares, sums.elements, sums.non_zero, sums.cosines, sums.rows});
  };
  for (const int32_t s : own_sublayers_) {
    mine.insert(mine.end(), {static_cast<double>(s), updates[s].change_squares, updates[s].weight_squares});
    for (const DepthTensor tensor :
         {DepthTensor::kOutputGradient, DepthTensor::kNormOutputGradient, DepthTensor::kNormInputGradient}) {
      append(gradients_.sums(s, tensor));
    }
    for (const DepthTensor tensor :
         {DepthTensor::kOutput, DepthTensor::kNormInput, DepthTensor::kHidden, DepthTensor::kSecondStream}) {
      append(probe_ ? probe_->statistics().sums(s, tensor) : TensorSums());
    }
  }
  return mine;
}

// Ranks in their order, hence replicas in theirs.
std::vector<DepthRecorder::SublayerSums> DepthRecorder::AddUp(const std::vector<std::vector<double>>& all,
                                                              size_t sublayers) {
  std::vector<SublayerSums> total(sublayers);
  for (const std::vector<double>& values : all) {
    size_t next = kHeadValues;
    const auto add = [&](TensorSums& sums) {
      for (double* sum : {&sums.squares, &sums.elements, &sums.non_zero, &sums.cosines, &sums.rows}) {
        *sum += values[next++];
      }
    };
    while (next < values.size()) {
      SublayerSums& sums = total[static_cast<size_t>(values[next++])];
      sums.update.change_squares += values[next++];
      sums.update.weight_squares += values[next++];
      for (TensorSums* tensor : {&sums.output_gradient, &sums.norm_output_gradient, &sums.norm_input_gradient,
                                 &sums.output, &sums.norm_input, &sums.hidden, &sums.second_stream}) {
        add(*tensor);
      }
    }
  }
  return total;
}

void DepthRecorder::Fill(const std::vector<SublayerSums>& sums, const StepResult& result, DepthMetrics& metrics) const {
  const auto norm = [](const TensorSums& t) { return t.elements > 0 ? Finite(std::sqrt(t.squares)) : kNone; };
  const auto mean = [](const TensorSums& t) { return t.elements > 0 ? Finite(RootMeanSquare(t)) : kNone; };
  const auto add = [&metrics](DepthSeries series, float value) { metrics[series].push_back(value); };
  const bool second_stream = plan_.HasSecondStream(Stack::kEncoder) || plan_.HasSecondStream(Stack::kDecoder);
  for (size_t s = 0; s < plan_.sublayers.size(); ++s) {
    if (plan_.sublayers[s].layer < 0) continue;
    const SublayerSums& at = sums[s];
    add(DepthSeries::kParameterGradient, Finite(result.gradient.sublayer_norms[s]));
    if (result.applied) {
      const double ratio = std::sqrt(at.update.change_squares / at.update.weight_squares);
      add(DepthSeries::kUpdateRatio, at.update.weight_squares > 0 ? Finite(ratio) : kNone);
    }
    add(DepthSeries::kOutputGradient, norm(at.output_gradient));
    add(DepthSeries::kNormOutputGradient, norm(at.norm_output_gradient));
    const SublayerRecord& record = plan_.sublayers[s];
    const bool reads_layers = plan_.Combines(record.stack) && record.kind == SublayerKind::kSelfAttention;
    const bool reads_stream = record.norm == NormPlacement::kPre && plan_.Residuals(record.stack) == 1 &&
                              !reads_layers && !plan_.ReadsBlocks(record.stack);
    add(DepthSeries::kNormInputGradient, norm(reads_stream ? sums[s - 1].output_gradient : at.norm_input_gradient));
    if (!probe_) continue;
    add(DepthSeries::kOutput, mean(at.output));
    add(DepthSeries::kNormInput, mean(at.norm_input));
    add(DepthSeries::kSimilarity, at.output.rows > 0 ? Finite(at.output.cosines / at.output.rows) : kNone);
    if (second_stream) add(DepthSeries::kSecondStream, mean(at.second_stream));
    add(DepthSeries::kActive, at.hidden.elements > 0 ? Finite(at.hidden.non_zero / at.hidden.elements) : kNone);
  }
}

absl::StatusOr<std::optional<DepthMetrics>> DepthRecorder::AfterStep(int64_t step, int64_t update,
                                                                     int64_t growth_update, const StepResult& result) {
  if (!recording_) return std::nullopt;
  engine_.Observe(nullptr);
  const Stopwatch watch;
  if (probe_) HADAL_RETURN_IF_ERROR(probe_->Run(engine_, std::max<int64_t>(growth_update, 1)));
  HADAL_ASSIGN_OR_RETURN(const std::vector<std::vector<double>> all,
                         collectives_.AllGather(Mine(), "instruments of the depth"));
  DepthMetrics metrics{.step = step + 1, .update = update};
  Fill(AddUp(all, plan_.sublayers.size()), result, metrics);
  double squares = 0, rows = 0;
  for (const std::vector<double>& values : all) {
    squares += values[0];
    rows += values[1];
  }
  if (rows > 0) metrics.model_update = std::sqrt(squares / rows);
  metrics.seconds = watch.Seconds();
  return metrics;
}

}  // namespace hadal
