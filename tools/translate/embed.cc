// `hadal embed` writes a vector for each sentence or document of a text: what an encoder alone returns for it.
//
//   hadal embed RUN_OR_DIR --input FILE [--out FILE.npy] [--pooling mean|first]
// Writes an array [lines, d_model] of float32 in NumPy's format 1.0: the mean of the encoder's outputs over the line's
// tokens and </s>, or the output at the first of them. Without --out prints each vector as a JSON array on a line,
// after every --buffer lines of input; null is a value that is not finite. An empty line is </s> alone. With a
// tokenizer.json the tokens of its post-processor are there, as in training. The file is read as by `hadal prepare`
// (JSON Lines: an object is a line). A line's vector does not depend on the other lines. One process, on the CPU: under
// mpirun the first. Memory: a buffer of lines, with --out all vectors.
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/instruction_set.h"
#include "launch/task_launcher.h"
#include "layers/depth_observer.h"
#include "pipeline/checkpoint/model_checkpoint.h"
#include "pipeline/engine/engine.h"
#include "runtime/bytes.h"
#include "runtime/comm/in_process_communicator.h"
#include "runtime/compute_thread.h"
#include "runtime/data/corpus.h"
#include "runtime/data/input_masks.h"
#include "runtime/files.h"
#include "runtime/status_macros.h"
#include "tools/checkpoint/checkpoint_command.h"
#include "tools/command_line.h"
#include "tools/commands.h"
#include "tools/corpus/parallel_text.h"
#include "tools/corpus/text_codec.h"
#include "tools/output/human_units.h"
#include "tools/output/staged_output.h"
#include "tools/tool_exit_code.h"
#include "tools/translate/score.h"

namespace hadal {
namespace {

enum class Pooling { kMean, kFirst };

struct EmbedOptions {
  std::string checkpoint;
  std::string input, output;        // empty output: standard output
  std::string text_field = "text";  // of an input in JSON Lines
  Pooling pooling = Pooling::kMean;
  bool overwrite = false;       // replace an array of the same name
  int32_t batch_tokens = 2048;  // of a batch; also limits a line
  int64_t buffer_lines = 2000;  // that are read, embedded and written at a time
  int32_t threads = 1;
};

constexpr absl::Duration kTimeout = absl::Minutes(10);
constexpr std::string_view kMagic("\x93NUMPY\x01\x00", 8);

// NumPy's header is padded to a multiple of 64 bytes.
std::string NpyHeader(int64_t rows, int64_t columns) {
  std::string header = absl::StrFormat("{'descr': '<f4', 'fortran_order': False, 'shape': (%d, %d), }", rows, columns);
  const size_t before = kMagic.size() + 2;
  header.append(63 - (before + header.size()) % 64, ' ');
  header += '\n';
  std::string bytes(kMagic);
  AppendValue(static_cast<uint16_t>(header.size()), bytes);
  return bytes + header;
}

// Pools the model's outputs of each sentence of a step's batches.
class SentenceVectors : public DepthObserver {
 public:
  explicit SentenceVectors(Pooling pooling) : pooling_(pooling) {}

  // Of the next step, whose values replace those of the last one.
  void Begin(std::span<const PackedBatch> batches) {
    batches_ = batches;
    values_.clear();
  }
  void Observe(const Stream&, int32_t micro_batch, const DepthObservation& observation) override {
    if (observation.tensor != DepthTensor::kModelOutput) return;
    const PackedBatch& batch = batches_[static_cast<size_t>(micro_batch)];
    const ConstMatrix x = observation.values.floats();
    for (size_t n = 0; n < batch.samples.size(); ++n) {
      const int32_t begin = batch.source_offsets[n];
      const int32_t end = pooling_ == Pooling::kFirst ? begin + 1 : batch.source_offsets[n + 1];
      for (int64_t c = 0; c < x.columns; ++c) {
        double sum = 0;
        for (int32_t row = begin; row < end; ++row) sum += x.row(row)[c];
        values_.push_back(static_cast<float>(sum / (end - begin)));
      }
    }
  }
  const std::vector<float>& values() const { return values_; }

 private:
  Pooling pooling_;
  std::span<const PackedBatch> batches_;
  std::vector<float> values_;
};

// The ids of the next lines, at most options.buffer_lines.
absl::StatusOr<std::vector<std::vector<int32_t>>> ReadLines(const EmbedOptions& options, const ModelOptions& model,
                                                            ParallelReader& text, TextCodec& codec) {
  const TextForm form = FormOf(model);
  const int64_t longest = std::min(model.max_positions, options.batch_tokens) - 1;
  std::vector<std::vector<int32_t>> lines;
  for (ParallelLine line; std::ssize(lines) < options.buffer_lines;) {
    HADAL_ASSIGN_OR_RETURN(const bool more, text.Next(line));
    if (!more) break;
    HADAL_ASSIGN_OR_RETURN(lines.emplace_back(), codec.Encode(line, options.input, /*alone=*/true));
    if (!form.reserved_ids) RemoveEnds(form, lines.back());
    if (std::ssize(lines.back()) <= longest) continue;
    return InvalidArgumentError(
        options.input, ": line ", line.number, " has ", lines.back().size(), " tokens, more than ", longest,
        ", the limit of the model (max_positions) and of --batch-tokens; split it, or raise --batch-tokens");
  }
  return lines;
}

// Prints the vectors, or returns them as an array of options.output.
absl::StatusOr<std::string> Embed(const EmbedOptions& options, Communicator& communicator, std::ostream& out) {
  PrepareComputeThread();
  UseInstructionSets(AvailableInstructionSets());
  HADAL_ASSIGN_OR_RETURN(ModelCheckpoint checkpoint, ModelCheckpoint::Open(options.checkpoint));
  const ModelPlan& plan = checkpoint.plan();
  if (plan.options.has_decoder()) {
    return InvalidArgumentError(checkpoint.directory(),
                                " has a decoder; `hadal embed` reads an encoder alone (decoder_layers = 0)");
  }
  HADAL_ASSIGN_OR_RETURN(ParallelReader text,
                         ParallelReader::Open({.target = options.input, .text_field = options.text_field}));
  HADAL_ASSIGN_OR_RETURN(TextCodec codec, TextCodec::Open(checkpoint.target_vocabulary()));
  const BatchOptions size{.source_tokens = options.batch_tokens, .target_tokens = options.batch_tokens};
  HADAL_ASSIGN_OR_RETURN(const PipelineLayout pipeline, MakePipelineLayout(plan, size, {}, 1));
  HADAL_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, Engine::Create({.plan = plan,
                                                                               .pipeline = pipeline,
                                                                               .stream = Stream::Cpu(options.threads),
                                                                               .purpose = Purpose::kInference,
                                                                               .world = communicator,
                                                                               .timeout = kTimeout}));
  HADAL_RETURN_IF_ERROR(checkpoint.ReadWeights(engine->stage().parameters(), engine->stage().stream()));
  SentenceVectors vectors(options.pooling);
  engine->Observe(&vectors);
  const StepScalars scalars{.update = std::max<int64_t>(checkpoint.progress().growth_update(), 1), .training = false};
  const int64_t width = plan.options.d_model;
  std::vector<float> array;
  while (true) {
    HADAL_ASSIGN_OR_RETURN(const auto lines, ReadLines(options, plan.options, text, codec));
    if (lines.empty()) break;
    std::vector<SampleView> samples;
    for (const auto& line : lines) {
      samples.push_back({.target = line, .has_source = false, .form = FormOf(plan.options)});
    }
    HADAL_ASSIGN_OR_RETURN(std::vector<PackedBatch> batches,
                           PackSentences(samples, {options.batch_tokens, options.batch_tokens}));
    for (PackedBatch& batch : batches) {
      MaskTokens({.share = 0, .vocabulary = plan.options.target_vocabulary}, 0, 0, batch);
    }
    vectors.Begin(batches);
    HADAL_RETURN_IF_ERROR(engine->Evaluate(batches, scalars).status());
    const std::vector<float>& values = vectors.values();
    if (!options.output.empty()) array.insert(array.end(), values.begin(), values.end());
    for (auto row = values.begin(); options.output.empty() && row != values.end(); row += width) {
      out << nlohmann::json(std::vector<float>(row, row + width)) << "\n";
    }
    out << std::flush;
  }
  return NpyHeader(std::ssize(array) / width, width).append(AsBytes(array));
}

// Errors: InvalidArgument for a model with a decoder, and with their number for lines that are not UTF-8 or too long;
// those of opening a checkpoint and of CheckOutput.
absl::Status RunEmbed(const EmbedOptions& options, std::ostream& out) {
  const auto is_array = [&](std::string_view content) { return options.overwrite && content.starts_with(kMagic); };
  if (!options.output.empty()) {
    HADAL_RETURN_IF_ERROR(CheckOutput(options.output, {.inputs = {options.input}, .is_own = is_array}));
  }
  InProcessWorld alone(1);
  HADAL_ASSIGN_OR_RETURN(const std::string array, Embed(options, alone.communicator(0), out));
  if (options.output.empty()) return absl::OkStatus();
  HADAL_RETURN_IF_ERROR(ReplaceFile(options.output, array, absl::StrCat(getpid())));
  out << "written: " << options.output << ", " << HumanCount(std::ssize(array)) << " bytes" << std::endl;
  return absl::OkStatus();
}

}  // namespace

void AddEmbedCommand(Command app, int& exit_code) {
  Command command = app.AddCommand("embed", "Write the sentence vectors of an encoder alone");
  auto options = std::make_shared<EmbedOptions>();
  AddCheckpointOption(command, options->checkpoint);
  command.AddOption("-i,--input FILE", options->input, "Sentences, or JSON Lines").Required();
  command.AddOption("--text-field NAME", options->text_field, "Field of JSON Lines that is the text").ShowDefault();
  command.AddOption("-o,--out FILE", options->output, "NumPy array [lines, d_model] (default: JSON arrays, printed)");
  command.AddChoice<Pooling>("--pooling", options->pooling, "What a vector is (default: mean)",
                             {{"mean", Pooling::kMean}, {"first", Pooling::kFirst}});
  command.AddFlag("--overwrite", options->overwrite, "Replace FILE, if it is an array");
  command.AddNumber("--batch-tokens", options->batch_tokens, "Tokens of a batch; no line may be longer", 64, 1 << 20);
  command.AddNumber("--buffer", options->buffer_lines, "Lines read at a time", int64_t{1}, int64_t{1} << 32);
  command.AddNumber("--threads", options->threads, "CPU threads", 1, 1024);
  command.Runs([options, &exit_code] {
    if (!IsFirstTask(std::getenv)) return;  // of mpirun: the first one does all
    exit_code = EndTool("embed", RunEmbed(*options, std::cout));
  });
}

}  // namespace hadal
