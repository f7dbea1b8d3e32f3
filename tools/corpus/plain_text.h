// Detects files that are not UTF-8 text by their first bytes: compressed files and UTF-16.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace hadal {

// `name`: the file's name in errors. `first_line`: its content before the first "\n".
// Errors: InvalidArgument, with a remedy, for gzip, bzip2, xz, zstd, and a byte order mark of UTF-16.
absl::Status CheckIsPlainText(absl::string_view name, absl::string_view first_line);

// The bytes of text in the files, for showing progress; "" counts as an empty one. 0: unknown, because a file is
// compressed or not regular.
int64_t TextBytes(std::span<const std::string> paths);

}  // namespace hadal
