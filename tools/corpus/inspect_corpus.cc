#include "tools/corpus/inspect_corpus.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <ostream>
#include <span>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/data/packed_batch.h"
#include "runtime/data/sampling_order.h"
#include "runtime/status_macros.h"
#include "tools/output/human_units.h"

namespace hadal {
namespace {

// Number of occurrences of each token of a side, with </s> once per sample.  [V]  Errors: DataLoss, the corpus changes.
template <typename SideOf>
absl::StatusOr<std::vector<int64_t>> CountTokens(const Corpus& corpus, int64_t vocabulary_size, const SideOf& side_of) {
  std::vector<int64_t> counts(vocabulary_size, 0);
  for (int64_t i = 0; i < corpus.size(); ++i) {
    for (const int32_t token : side_of(corpus.sample(i))) {
      if (token >= 0 && token < vocabulary_size) ++counts[token];  // else the file is changing: see below
    }
  }
  HADAL_RETURN_IF_ERROR(corpus.CheckUnchanged());
  counts[kEosToken] += corpus.size();
  return counts;
}

template <typename SideOf>
absl::StatusOr<SideStatistics> Describe(const Corpus& corpus, int64_t vocabulary_size, const SideOf& side_of) {
  SideStatistics side;
  for (int64_t i = 0; i < corpus.size(); ++i) {
    side.longest = std::max(side.longest, static_cast<int64_t>(side_of(corpus.sample(i)).size()) + 1);
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

std::span<const int32_t> TargetOf(const SampleView& sample) { return sample.target; }

absl::StatusOr<Corpus> OpenFilled(const std::string& prefix) {
  HADAL_ASSIGN_OR_RETURN(Corpus corpus, Corpus::Open(prefix));
  if (corpus.size() == 0) return absl::InvalidArgumentError(absl::StrCat(prefix, ".json: the corpus has no samples"));
  return corpus;
}

void Print(const char* name, const SideStatistics& side, int64_t samples, std::ostream& out) {
  out << name << ": " << HumanCount(side.tokens) << " tokens (with </s>), "
      << absl::StrFormat("%.1f", static_cast<double>(side.tokens) / static_cast<double>(samples))
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
    const std::span<const int32_t> target = text.sample(i).target;
    for (const int32_t token : target) sum += nll(token);
    sum += nll(kEosToken);
    tokens += static_cast<int64_t>(target.size()) + 1;
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
    Print("source", source, corpus.size(), out);
  }
  HADAL_ASSIGN_OR_RETURN(const SideStatistics target, DescribeTarget(corpus));
  Print("target", target, corpus.size(), out);
  if (options.score.empty()) return absl::OkStatus();
  HADAL_ASSIGN_OR_RETURN(const Corpus text, OpenFilled(options.score));
  if (text.manifest().target_vocabulary.crc32c != corpus.manifest().target_vocabulary.crc32c) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", options.data, "\" and \"", options.score, "\" were prepared with different vocabularies"));
  }
  constexpr int64_t kAny = std::numeric_limits<int64_t>::max();
  HADAL_ASSIGN_OR_RETURN(const ValidationSamples chosen,
                         ChooseValidationSamples(text, {kAny, kAny}, options.max_sentences));
  HADAL_ASSIGN_OR_RETURN(const double nll, UnigramNll(corpus, text, chosen.samples));
  out << "score of " << options.score << ": " << HumanCount(std::ssize(chosen.samples)) << " targets have nll "
      << absl::StrFormat("%.4f", nll) << " nats per token under these frequencies\n";
  return absl::OkStatus();
}

}  // namespace hadal
