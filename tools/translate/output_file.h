// The file of --out: whole, or not there. It is written as PATH.partial and renamed when it is finished; until then
// PATH stays as it was. After an error PATH.partial remains with the lines that were written, if there are any.
// Links are followed. A pipe, a device and an open file of the process (/dev/stdout) are written as they are.
// Threads: one. Blocking: all.
#pragma once

#include <fstream>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace hadal {

class OutputFile {
 public:
  OutputFile() = default;
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();

  // Errors: InvalidArgument if it would empty one of `inputs`; those of creating a file.
  absl::Status Open(const std::string& path, const std::vector<std::string>& inputs);
  // REQUIRES: Open returned OK, and Finish has not been called.
  std::ofstream& stream() { return stream_; }
  // Closes the file and gives it its name; without effect if none is open.
  // Errors: ResourceExhausted if something was not written; those of renaming.
  absl::Status Finish();

 private:
  std::string path_;     // as it was given
  std::string file_;     // where its links lead; empty: written as it is
  std::string written_;  // the path that is open
  std::ofstream stream_;
};

}  // namespace hadal
