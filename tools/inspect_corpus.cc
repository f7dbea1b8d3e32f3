#include "tools/inspect_corpus.h"

#include <algorithm>
#include <cmath>
#include <ostream>
#include <span>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/data/packed_batch.h"
#include "runtime/status_macros.h"
#include "tools/human_units.h"

namespace hadal {
namespace {

template <typename SideOf>
SideStatistics Describe(const Corpus& corpus, int64_t vocabulary_size, const SideOf& side_of) {
  std::vector<int64_t> counts(vocabulary_size, 0);
  SideStatistics side;
  for (int64_t i = 0; i < corpus.size(); ++i) {
    const std::span<const int32_t> tokens = side_of(corpus.sample(i));
    for (const int32_t token : tokens) ++counts[token];
    ++counts[kEosToken];
    side.tokens += static_cast<int64_t>(tokens.size()) + 1;
    side.longest = std::max(side.longest, static_cast<int64_t>(tokens.size()) + 1);
  }
  for (const int64_t count : counts) {
    if (count == 0) continue;
    const double p = static_cast<double>(count) / static_cast<double>(side.tokens);
    ++side.distinct;
    side.unigram_entropy -= p * std::log(p);
  }
  return side;
}

void Print(const char* name, const SideStatistics& side, int64_t samples, std::ostream& out) {
  out << name << ": " << HumanCount(side.tokens) << " tokens (</s> counted), "
      << absl::StrFormat("%.1f", static_cast<double>(side.tokens) / static_cast<double>(samples))
      << " a sample, longest " << HumanCount(side.longest) << "; " << HumanCount(side.distinct)
      << " distinct, unigram entropy " << absl::StrFormat("%.4f", side.unigram_entropy) << " nats\n";
}

}  // namespace

SideStatistics DescribeSource(const Corpus& corpus) {
  return Describe(corpus, corpus.manifest().source_vocabulary.size, [](const SampleView& s) { return s.source; });
}

SideStatistics DescribeTarget(const Corpus& corpus) {
  return Describe(corpus, corpus.manifest().target_vocabulary.size, [](const SampleView& s) { return s.target; });
}

absl::Status RunInspectCorpus(const std::string& prefix, std::ostream& out) {
  HADAL_ASSIGN_OR_RETURN(const Corpus corpus, Corpus::Open(prefix));
  if (corpus.size() == 0) return absl::InvalidArgumentError(absl::StrCat(prefix, ".json: the corpus has no samples"));
  out << prefix << ": " << HumanCount(corpus.size()) << " samples\n";
  Print("source", DescribeSource(corpus), corpus.size(), out);
  Print("target", DescribeTarget(corpus), corpus.size(), out);
  return absl::OkStatus();
}

}  // namespace hadal
