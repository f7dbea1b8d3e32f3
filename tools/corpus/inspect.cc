#include "tools/corpus/inspect.h"

#include <algorithm>
#include <cmath>
#include <iostream>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <ostream>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "runtime/data/packed_batch.h"
#include "runtime/data/sampling_order.h"
#include "runtime/status_macros.h"
#include "runtime/text.h"
#include "tools/commands.h"
#include "tools/output/human_units.h"
#include "tools/tool_exit_code.h"

namespace hadal {
namespace {

// The token that ends a sample's rows and is not among its tokens, or -1: a block has none.
int32_t EndOf(const CorpusManifest& manifest) { return manifest.form.block > 0 ? -1 : manifest.form.end_token; }

// Number of occurrences of each token of a side, with </s> once per sample.  [V]  Errors: DataLoss, the corpus changes.
template <typename SideOf>
absl::StatusOr<std::vector<int64_t>> CountTokens(const Corpus& corpus, int64_t vocabulary_size, const SideOf& side_of) {
  std::vector<int64_t> counts(vocabulary_size, 0);
  for (int64_t i = 0; i < corpus.size(); ++i) {
    for (const int32_t marked : side_of(corpus.sample(i))) {
      const int32_t token = marked & ~kContinuesWord;
      if (token >= 0 && token < vocabulary_size) ++counts[token];  // else the file is changing: see below
    }
  }
  HADAL_RETURN_IF_ERROR(corpus.CheckUnchanged());
  if (const int32_t end = EndOf(corpus.manifest()); end >= 0) counts[end] += corpus.size();
  return counts;
}

template <typename SideOf>
absl::StatusOr<SideStatistics> Describe(const Corpus& corpus, int64_t vocabulary_size, const SideOf& side_of) {
  SideStatistics side;
  for (int64_t i = 0; i < corpus.size(); ++i) {
    const int64_t end = EndOf(corpus.manifest()) >= 0 ? 1 : 0;
    side.longest = std::max(side.longest, std::ssize(side_of(corpus.sample(i))) + end);
  }
  HADAL_ASSIGN_OR_RETURN(const std::vector<int64_t> counts, CountTokens(corpus, vocabulary_size, side_of));
  side.tokens = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  for (const int64_t count : counts) {
    if (count == 0) continue;
    const double p = static_cast<double>(count) / static_cast<double>(side.tokens);
    ++side.distinct;
    side.unigram_entropy -= p * std::log(p);
  }
  return side;
}

// Of a block, the tokens that are targets.
std::span<const int32_t> TargetOf(const SampleView& sample) {
  return sample.form.block > 0 && !sample.target.empty() ? sample.target.subspan(1) : sample.target;
}

absl::StatusOr<Corpus> OpenFilled(const std::string& prefix) {
  HADAL_ASSIGN_OR_RETURN(Corpus corpus, Corpus::Open(prefix));
  if (corpus.size() == 0) return InvalidArgumentError(prefix, ".json: the corpus has no samples");
  return corpus;
}

void Print(const char* name, const SideStatistics& side, const Corpus& corpus, std::ostream& out) {
  out << name << ": " << HumanCount(side.tokens) << " tokens"
      << (EndOf(corpus.manifest()) >= 0 ? " (with </s>), " : ", ")
      << absl::StrFormat("%.1f", static_cast<double>(side.tokens) / static_cast<double>(corpus.size()))
      << " per sample, longest " << HumanCount(side.longest) << "; " << HumanCount(side.distinct)
      << " distinct, unigram entropy " << absl::StrFormat("%.4f", side.unigram_entropy) << " nats\n";
}

void PrintFrames(const CorpusManifest& manifest, std::ostream& out) {
  const CorpusStatistics& statistics = manifest.statistics;
  out << "source: " << HumanCount(statistics.source_tokens) << " frames of " << manifest.frame_width << " features, "
      << absl::StrFormat("%.1f", static_cast<double>(statistics.source_tokens) / static_cast<double>(manifest.samples))
      << " per sample, longest " << HumanCount(statistics.longest_source) << " ("
      << HumanCount(SubsampledRows(std::max<int64_t>(1, statistics.longest_source))) << " encoder rows)\n";
}

}  // namespace

absl::StatusOr<SideStatistics> DescribeSource(const Corpus& corpus) {
  return Describe(corpus, corpus.manifest().source_vocabulary.size, [](const SampleView& s) { return s.source; });
}

absl::StatusOr<SideStatistics> DescribeTarget(const Corpus& corpus) {
  return Describe(corpus, corpus.manifest().target_vocabulary.size, TargetOf);
}

absl::StatusOr<double> UnigramNll(const Corpus& counted, const Corpus& text, std::span<const int64_t> samples) {
  HADAL_ASSIGN_OR_RETURN(const std::vector<int64_t> counts,
                         CountTokens(counted, counted.manifest().target_vocabulary.size, TargetOf));
  const double total = static_cast<double>(std::accumulate(counts.begin(), counts.end(), int64_t{0})) +
                       0.5 * static_cast<double>(counts.size());
  const auto nll = [&](int32_t token) {
    const bool is_in = token >= 0 && token < static_cast<int64_t>(counts.size());  // else the file is changing
    return -std::log((is_in ? static_cast<double>(counts[token]) + 0.5 : 0.5) / total);
  };
  double sum = 0;
  int64_t tokens = 0;
  for (const int64_t i : samples) {
    const std::span<const int32_t> target = TargetOf(text.sample(i));
    for (const int32_t token : target) sum += nll(token & ~kContinuesWord);
    tokens += std::ssize(target);
    if (const int32_t end = EndOf(text.manifest()); end >= 0) {
      sum += nll(end);
      ++tokens;
    }
  }
  HADAL_RETURN_IF_ERROR(text.CheckUnchanged());
  return sum / static_cast<double>(tokens);
}

absl::Status RunInspectCorpus(const InspectCorpusOptions& options, std::ostream& out) {
  HADAL_ASSIGN_OR_RETURN(const Corpus corpus, OpenFilled(options.data));
  out << options.data << ": " << HumanCount(corpus.size()) << " samples\n";
  if (corpus.manifest().frame_width > 0) PrintFrames(corpus.manifest(), out);
  if (corpus.manifest().source_vocabulary.size > 0) {
    HADAL_ASSIGN_OR_RETURN(const SideStatistics source, DescribeSource(corpus));
    Print("source", source, corpus, out);
  }
  HADAL_ASSIGN_OR_RETURN(const SideStatistics target, DescribeTarget(corpus));
  Print("target", target, corpus, out);
  if (options.score.empty()) return absl::OkStatus();
  HADAL_ASSIGN_OR_RETURN(const Corpus text, OpenFilled(options.score));
  if (text.manifest().target_vocabulary.crc32c != corpus.manifest().target_vocabulary.crc32c) {
    return InvalidArgumentError("\"", options.data, "\" and \"", options.score,
                                "\" were prepared with different vocabularies");
  }
  constexpr int64_t kAny = std::numeric_limits<int64_t>::max();
  HADAL_ASSIGN_OR_RETURN(const ValidationSamples chosen,
                         ChooseValidationSamples(text, {kAny, kAny}, options.max_sentences));
  HADAL_ASSIGN_OR_RETURN(const double nll, UnigramNll(corpus, text, chosen.samples));
  out << "score of " << options.score << ": " << HumanCount(std::ssize(chosen.samples)) << " targets have nll "
      << absl::StrFormat("%.4f", nll) << " nats per token under these frequencies\n";
  return absl::OkStatus();
}

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
  order.Skip((options.step - 1) * options.micro_batches);
  HADAL_RETURN_IF_ERROR(order.Next(options.step - 1, step));
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
  command.AddNumber("--step", options->step, "The step, from 1", int64_t{1}, int64_t{1} << 32);
  command.AddOption("--seed", options->seed, "The run's seed").ShowDefault();
  command.AddNumber("--micro-batches", options->micro_batches, "Micro-batches per step", 1, 65536);
  command.AddNumber("--source-tokens", options->source_tokens,
                    "Source capacity of a micro-batch; 0 for text without a source", 0, 1 << 20);
  command.AddNumber("--target-tokens", options->target_tokens, "Target capacity of a micro-batch", 2, 1 << 20);
  command.AddNumber("--max-positions", options->max_positions, "Longest side of a sentence, as model.max_positions", 2,
                    65536);
  command.AddOption("--sampling-temperature", options->temperatures, "T of each epoch, as data.sampling_temperature")
      .InRange(0.001, 1e9);
  command.AddNumber("--max-sentences", options->max_sentences, "Sentences printed per micro-batch; 0: all", 0,
                    100'000'000);
  command.AddFlag("--ids-only", options->ids_only, "Print ids without text");
  command.Runs([options, &exit_code] { exit_code = EndTool("inspect batch", RunInspectBatch(*options, std::cout)); });
  Command corpus = inspect.AddCommand("corpus", "Print a corpus's size and unigram entropy");
  auto corpus_options = std::make_shared<InspectCorpusOptions>();
  corpus.AddOption("CORPUS", corpus_options->data, "Prefix of a prepared corpus").Required();
  corpus.AddOption("--score PREFIX", corpus_options->score,
                   "Score another corpus's targets by this one's token frequencies");
  corpus.AddNumber("--max-sentences", corpus_options->max_sentences, "First targets of each corpus to score; 0: all", 0,
                   100'000'000);
  corpus.Runs([corpus_options, &exit_code] {
    exit_code = EndTool("inspect corpus", RunInspectCorpus(*corpus_options, std::cout));
  });
}

}  // namespace hadal
