// Every reader of files that others wrote, as a function of bytes: what the fuzzers throw mutated files at.
//
// A target must return whatever the bytes are: no crash, no read outside what it was given or outside its directory, no
// memory beyond a multiple of the input. Where a file carries a checksum over its own text, the target seals the input
// with the right one first, so that the fuzzer gets behind that door; sealed or not is one bit of the input's hash, so
// both ways are taken. Thread safety: one thread at a time (files of fixed names in a temporary directory of the
// process).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hadal::fuzz {

struct ReaderTarget {
  const char* name;
  // Returns whether the input was accepted.
  bool (*run)(std::string_view input);
  // Good files to start from.
  std::vector<std::string> (*seeds)();
};

std::span<const ReaderTarget> ReaderTargets();
// REQUIRES: there is one of that name.
const ReaderTarget& FindReaderTarget(std::string_view name);

}  // namespace hadal::fuzz
