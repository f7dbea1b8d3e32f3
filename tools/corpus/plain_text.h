// Detects files that are not UTF-8 text by their first bytes: compressed files and UTF-16.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace hadal {

// `name`: the file's name in errors. `first_line`: its content before the first "\n".
// Errors: InvalidArgument, with a remedy, for gzip, bzip2, xz, zstd, and a byte order mark of UTF-16.
absl::Status CheckIsPlainText(absl::string_view name, absl::string_view first_line);

}  // namespace hadal
