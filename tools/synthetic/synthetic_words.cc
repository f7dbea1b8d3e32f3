#include "tools/synthetic/synthetic_words.h"

namespace hadal {

std::string Words::Sentence(char end) const {
  std::string text;
  for (const std::string& word : words_) {
    const bool comma = word == ",";
    if (comma && text.ends_with(',')) continue;
    if (!comma && !text.empty()) text.push_back(' ');
    text.append(word);
  }
  if (text.ends_with(',')) text.pop_back();
  if (!text.empty() && text[0] >= 'a' && text[0] <= 'z') text[0] = static_cast<char>(text[0] - 'a' + 'A');
  text.push_back(end);
  return text;
}

}  // namespace hadal
