// What is given for text by mistake most often, told by its first bytes: a compressed file, and UTF-16.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace hadal {

// `name` stands for the file in the error; `first_line` is what stands in it before the first "\n".
// Errors: InvalidArgument, with what to do, for gzip, bzip2, xz and zstd, and for a byte order mark of UTF-16.
absl::Status CheckIsPlainText(absl::string_view name, absl::string_view first_line);

}  // namespace hadal
