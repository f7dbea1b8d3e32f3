#include "pipeline/instruments/depth_probe.h"

#include <algorithm>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/bytes.h"
#include "runtime/crc32c.h"
#include "runtime/data/sampling_order.h"
#include "runtime/files.h"
#include "runtime/run_directory.h"
#include "runtime/safetensors.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

constexpr char kTensorName[] = "first_output";
constexpr char kChecksumKey[] = "crc32c";  // of the tensor's bytes

std::string Checksum(const std::vector<float>& values) {
  const std::string_view bytes = AsBytes(values);
  return absl::StrCat(absl::Hex(Crc32c(bytes.data(), bytes.size()), absl::kZeroPad8));
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
  const int64_t rows = batches_.front().target_rows(), d = plan_->options.d_model;
  const int32_t tensor = reader.Find(kTensorName);
  const bool fits = tensor >= 0 && reader.tensors()[tensor].type == SafetensorsType::kF32 &&
                    reader.tensors()[tensor].shape == std::vector<int64_t>{rows, d};
  if (!fits) return absl::FailedPreconditionError(absl::StrCat(path_, ": is of another model or another probe"));
  std::vector<float> output(rows * d);
  HADAL_RETURN_IF_ERROR(reader.Read(tensor, 0, reader.tensors()[tensor].bytes(), output.data()));
  SafetensorsMetadata written = reader.metadata(), expected = Identity(output);
  if (written[kChecksumKey] != expected[kChecksumKey]) {
    return absl::DataLossError(absl::StrCat(path_, ": is damaged: the CRC32C of its tensor is ", expected[kChecksumKey],
                                            ", it says \"", written[kChecksumKey], "\""));
  }
  if (written != expected) {
    return absl::FailedPreconditionError(absl::StrCat(path_, ": is of another model or another probe"));
  }
  first_output_ = std::move(output);
  return absl::OkStatus();
}

}  // namespace hadal
