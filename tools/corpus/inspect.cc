#include "tools/corpus/inspect.h"

#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "runtime/data/corpus_vocabulary.h"
#include "runtime/data/sampling_order.h"
#include "runtime/printable.h"
#include "runtime/status_macros.h"
#include "tools/corpus/inspect_corpus.h"
#include "tools/output/human_units.h"
#include "tools/tool_exit_code.h"

namespace hadal {
namespace {

// The rows of sentence `s`.
std::span<const int32_t> Rows(const std::vector<int32_t>& tokens, const std::vector<int32_t>& offsets, size_t s) {
  const auto begin = static_cast<size_t>(offsets[s]);
  return std::span(tokens).subspan(begin, static_cast<size_t>(offsets[s + 1]) - begin);
}

void PrintSide(const char* side, std::span<const int32_t> rows, const Vocabulary* vocabulary, std::ostream& out) {
  out << "    " << side << " " << absl::StrJoin(rows, " ") << "\n";
  if (vocabulary != nullptr) out << "           \"" << Printable(vocabulary->Decode(rows)) << "\"\n";
}

// How many frames utterance `s` has, and the mean and standard deviation of its features.
void PrintFrames(const PackedBatch& batch, size_t s, std::ostream& out) {
  const auto width = static_cast<size_t>(batch.frame_width);
  const auto begin = static_cast<size_t>(batch.frame_offsets[s]), end = static_cast<size_t>(batch.frame_offsets[s + 1]);
  double sum = 0, squares = 0;
  for (const float value : std::span(batch.frames).subspan(begin * width, (end - begin) * width)) {
    sum += value;
    squares += double{value} * value;
  }
  const double count = static_cast<double>((end - begin) * width), mean = sum / count;
  out << absl::StreamFormat("    frames %d of %d features, %d encoder rows; mean %.3f, deviation %.3f\n", end - begin,
                            batch.frame_width, batch.source_offsets[s + 1] - batch.source_offsets[s], mean,
                            std::sqrt(std::max(0.0, squares / count - mean * mean)));
}

void PrintBatch(const Corpus& corpus, const PackedBatch& batch, const std::optional<CorpusVocabularies>& vocabularies,
                int64_t max_sentences, std::ostream& out) {
  out << "micro-batch " << batch.micro_batch << ": " << HumanCount(batch.sentences()) << " sentences, "
      << HumanCount(batch.source_rows()) << " source rows, " << HumanCount(batch.target_rows()) << " target rows\n";
  const int64_t shown = max_sentences > 0 ? std::min(max_sentences, batch.sentences()) : batch.sentences();
  for (size_t s = 0; s < static_cast<size_t>(shown); ++s) {
    const SampleView sample = corpus.sample(batch.samples[s]);
    out << "  sample " << batch.samples[s] << ", corpus " << sample.corpus_id << ", weight " << sample.weight << "\n";
    if (batch.frame_width > 0) {
      PrintFrames(batch, s, out);
    } else if (sample.has_source) {
      PrintSide("source", Rows(batch.source, batch.source_offsets, s), vocabularies ? &vocabularies->source : nullptr,
                out);
    }
    PrintSide("target", Rows(batch.target, batch.target_offsets, s), vocabularies ? &vocabularies->target : nullptr,
              out);
  }
  if (shown < batch.sentences()) out << "  and " << HumanCount(batch.sentences() - shown) << " more\n";
}

}  // namespace

absl::Status RunInspectBatch(const InspectBatchOptions& options, std::ostream& out) {
  if (options.step < 1) {
    return absl::InvalidArgumentError(absl::StrCat("--step ", options.step, " is below 1; steps count from 1"));
  }
  HADAL_ASSIGN_OR_RETURN(const Corpus corpus, Corpus::Open(options.data));
  std::optional<CorpusVocabularies> vocabularies;
  if (!options.ids_only) {
    HADAL_ASSIGN_OR_RETURN(vocabularies, LoadVocabularies(corpus));
  }
  const SamplingOptions sampling = {.seed = options.seed,
                                    .capacity = {options.source_tokens, options.target_tokens, options.max_positions},
                                    .micro_batches_per_step = options.micro_batches,
                                    .temperatures = options.temperatures};
  HADAL_ASSIGN_OR_RETURN(SamplingOrder order, SamplingOrder::Create(corpus, sampling));
  StepBatches step;
  HADAL_RETURN_IF_ERROR(order.At(options.step - 1, step));
  out << absl::StreamFormat(
      "step %d, seed %d: %d micro-batches, %s source rows, %s target rows; %.4f epochs after it\n", options.step,
      options.seed, options.micro_batches, HumanCount(step.source_tokens), HumanCount(step.target_tokens),
      step.epochs_done);
  if (order.too_long() > 0) {
    out << HumanCount(order.too_long()) << " of " << HumanCount(corpus.size())
        << " samples are longer than a micro-batch or the model's positions and are left out\n";
  }
  for (const PackedBatch& batch : step.micro_batches) {
    PrintBatch(corpus, batch, vocabularies, options.max_sentences, out);
  }
  return absl::OkStatus();
}

void AddInspectCommand(Command app, int& exit_code) {
  Command inspect = app.AddCommand("inspect", "Describe a corpus, or print a step's batch");
  inspect.RequireCommand();
  Command command = inspect.AddCommand("batch", "Print the token ids of a given step");
  auto options = std::make_shared<InspectBatchOptions>();
  command.AddOption("CORPUS", options->data, "Prefix of a prepared corpus").Required();
  command.AddOption("--step", options->step, "The step, from 1").ShowDefault();
  command.AddOption("--seed", options->seed, "The run's seed").ShowDefault();
  command.AddOption("--micro-batches", options->micro_batches, "Micro-batches per step").ShowDefault();
  command.AddOption("--source-tokens", options->source_tokens, "Source capacity of a micro-batch").ShowDefault();
  command.AddOption("--target-tokens", options->target_tokens, "Target capacity of a micro-batch").ShowDefault();
  command.AddOption("--max-positions", options->max_positions, "Longest side of a sentence, as model.max_positions")
      .ShowDefault();
  command.AddOption("--sampling-temperature", options->temperatures, "T of each epoch, as data.sampling_temperature");
  command.AddOption("--max-sentences", options->max_sentences, "Sentences printed per micro-batch; 0: all")
      .ShowDefault();
  command.AddFlag("--ids-only", options->ids_only, "Print ids without text");
  command.Runs([options, &exit_code] {
    const absl::Status status = RunInspectBatch(*options, std::cout);
    exit_code = EndTool("inspect batch", status);
  });
  Command corpus = inspect.AddCommand("corpus", "Print a corpus's size and unigram entropy");
  auto corpus_options = std::make_shared<InspectCorpusOptions>();
  corpus.AddOption("CORPUS", corpus_options->data, "Prefix of a prepared corpus").Required();
  corpus.AddOption("--score", corpus_options->score, "Score another corpus's targets by this one's token frequencies")
      .ValueName("PREFIX");
  corpus.AddOption("--max-sentences", corpus_options->max_sentences, "First targets of each corpus to score; 0: all")
      .ShowDefault();
  corpus.Runs([corpus_options, &exit_code] {
    const absl::Status status = RunInspectCorpus(*corpus_options, std::cout);
    exit_code = EndTool("inspect corpus", status);
  });
}

}  // namespace hadal
