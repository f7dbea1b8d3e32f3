// A list of words and commas that is joined to a sentence.
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
  // Adds a comma. Sentence() merges commas in a row and drops one at the end.
  Words& Comma() { return Add(","); }
  bool empty() const { return words_.empty(); }
  const std::string& front() const { return words_.front(); }

  // Joins the words with spaces, capitalises the first letter (ASCII) and appends `end` ("." or "?").
  std::string Sentence(char end) const;

 private:
  std::vector<std::string> words_;
};

}  // namespace hadal
