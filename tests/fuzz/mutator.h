// Mutations of a file, as a fuzzer without feedback makes them: the same sequence for the same seed, on every machine.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace hadal::fuzz {

class Mutator {
 public:
  explicit Mutator(uint64_t seed) : random_(seed) {}

  // One of `seeds` with one to eight changes: bits and bytes, runs left out, doubled or moved, the ends of two files
  // joined, numbers replaced by extreme ones, texts by hostile names, brackets nested deeply, the end cut off.
  std::string Next(const std::vector<std::string>& seeds);

 private:
  uint64_t Draw(uint64_t limit) { return limit == 0 ? 0 : random_() % limit; }
  void Mutate(std::string& text, const std::vector<std::string>& seeds);
  void ReplaceNumber(std::string& text);
  void ReplaceQuoted(std::string& text);
  void ReplaceInteger(std::string& text);

  std::mt19937_64 random_;
};

}  // namespace hadal::fuzz
