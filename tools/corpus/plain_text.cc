#include "tools/corpus/plain_text.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace hadal {
namespace {

// A kind of file, its first bytes, and the command that converts it to text.
struct FileKind {
  absl::string_view name, first_bytes, to_text;
};

constexpr FileKind kNotText[] = {
    {"compressed with gzip", "\x1F\x8B\x08", "gzip -dc"},
    {"compressed with bzip2", "BZh91AY&SY", "bzip2 -dc"},
    {"compressed with xz",
     "\xFD"
     "7zXZ",
     "xz -dc"},
    {"compressed with zstd", "\x28\xB5\x2F\xFD", "zstd -dc"},
    {"UTF-16", "\xFF\xFE", "iconv -f UTF-16 -t UTF-8"},
    {"UTF-16", "\xFE\xFF", "iconv -f UTF-16 -t UTF-8"},
};

}  // namespace

absl::Status CheckIsPlainText(absl::string_view name, absl::string_view first_line) {
  for (const FileKind& kind : kNotText) {
    if (!absl::StartsWith(first_line, kind.first_bytes)) continue;
    return absl::InvalidArgumentError(absl::StrCat(name, " is ", kind.name, "; UTF-8 text is needed: convert it with `",
                                                   kind.to_text, " FILE > TEXT`"));
  }
  return absl::OkStatus();
}

int64_t TextBytes(std::span<const std::string> paths) {
  int64_t bytes = 0;
  for (const std::string& path : paths) {
    if (path.empty()) continue;
    std::error_code error;
    if (absl::EndsWith(path, ".gz") || !std::filesystem::is_regular_file(path, error)) return 0;
    const uintmax_t size = std::filesystem::file_size(path, error);
    if (error) return 0;
    bytes += static_cast<int64_t>(size);
  }
  return bytes;
}

}  // namespace hadal
