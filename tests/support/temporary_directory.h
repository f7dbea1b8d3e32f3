// A directory of a test's own, removed at the end; and short ways to make and damage files in it.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "runtime/check.h"

namespace hadal {

class TemporaryDirectory {
 public:
  TemporaryDirectory() : path_(testing::TempDir() + "hadal_XXXXXX") { HADAL_CHECK(mkdtemp(path_.data()) != nullptr); }
  ~TemporaryDirectory() { std::filesystem::remove_all(path_); }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

inline std::string Contents(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void SetContents(const std::string& path, const std::string& contents) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << contents;
}

inline void FlipBit(const std::string& path, size_t byte, int bit = 0) {
  std::string contents = Contents(path);
  contents.at(byte) = static_cast<char>(contents.at(byte) ^ (1 << bit));
  SetContents(path, contents);
}

}  // namespace hadal
