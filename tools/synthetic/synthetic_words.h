// A row of words and commas, and how it becomes a written sentence.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hadal {

class Words {
 public:
  // Empty words are left out.
  Words& Add(std::string_view word) {
    if (!word.empty()) words_.emplace_back(word);
    return *this;
  }
  Words& Add(const Words& other) {
    words_.insert(words_.end(), other.words_.begin(), other.words_.end());
    return *this;
  }
  // A comma; in the sentence two in a row become one, and one at its end vanishes.
  Words& Comma() { return Add(","); }
  bool empty() const { return words_.empty(); }
  const std::string& front() const { return words_.front(); }

  // Joined with spaces, its first letter (ASCII) a capital, `end` ("." or "?") behind it.
  std::string Sentence(char end) const;

 private:
  std::vector<std::string> words_;
};

}  // namespace hadal
