#include "tools/corpus/repeated_text.h"

#include <functional>
#include <set>

#include "absl/strings/str_cat.h"

namespace hadal {

uint64_t HashOfPair(const Direction& direction, const ParallelLine& line) {
  return std::hash<std::string>()(
      absl::StrCat(direction.source, "-", direction.target, "\n", line.source, "\n", line.target));
}

RepeatedText::RepeatedText(const std::vector<TextPair>& texts) {
  for (const TextPair& text : texts) {
    texts_.push_back(
        {.direction = absl::StrCat(text.direction.source, "-", text.direction.target), .plain = text.source.empty()});
  }
  std::set<std::string> later;
  for (auto text = texts_.rbegin(); text != texts_.rend(); ++text) text->last = later.insert(text->direction).second;
}

RepeatedText::Repeated RepeatedText::Add(size_t text, const ParallelLine& line, uint64_t hash) {
  for (; text_ < text; ++text_) {
    if (texts_[text_].last) seen_.erase(texts_[text_].direction);
  }
  Seen& seen = seen_[texts_[text].direction];
  Repeated repeated = {.pair = !seen.pairs.insert(hash).second};
  if (texts_[text].plain) return repeated;
  const std::hash<std::string> hash_side;
  repeated.source = !seen.sources.insert(hash_side(line.source)).second;
  repeated.target = !seen.targets.insert(hash_side(line.target)).second;
  return repeated;
}

}  // namespace hadal
