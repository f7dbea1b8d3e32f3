// Reads lines of bounded length from an untrusted stream, so that a file or pipe without line ends takes no memory.
// Thread safety: as std::istream. Memory: one line. Blocking: as the stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <istream>
#include <string>

#include "absl/status/status.h"

namespace hadal {

inline constexpr size_t kMostLineBytes = size_t{64} << 20;

// As std::getline, but a line of more than kMostLineBytes makes the stream bad(): that is no text.
bool ReadLine(std::istream& in, std::string& line);

// Returns why ReadLine made the stream `name` bad(): InvalidArgument. `lines`: complete lines read before; `line`: the
// read part of the next one.
absl::Status ReadLineError(const std::string& name, int64_t lines, const std::string& line);

}  // namespace hadal
