#include "tools/translate/output_file.h"

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/files.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

// The file that `path` leads to; empty if that is written as it is.
std::string FileOf(const std::string& path) {
  constexpr int kMostLinks = 40;
  std::error_code error;
  std::filesystem::path at = path;
  for (int links = 0; links < kMostLinks; ++links) {
    const std::filesystem::path directory = std::filesystem::canonical(DirectoryName(at.native()), error);
    if (absl::StartsWith(directory.native(), "/proc/")) return "";
    if (!std::filesystem::is_symlink(at, error)) break;
    at = directory / std::filesystem::read_symlink(at, error);
  }
  const std::filesystem::file_status status = std::filesystem::status(at, error);
  const bool is_file = !std::filesystem::exists(status) || std::filesystem::is_regular_file(status) ||
                       std::filesystem::is_directory(status);
  return is_file ? at.native() : "";
}

}  // namespace

OutputFile::~OutputFile() {
  if (!stream_.is_open() || file_.empty()) return;
  stream_.close();
  std::error_code error;
  if (std::filesystem::is_empty(written_, error)) std::filesystem::remove(written_, error);
}

absl::Status OutputFile::Open(const std::string& path, const std::vector<std::string>& inputs) {
  path_ = path;
  file_ = FileOf(path);
  written_ = file_.empty() ? path : absl::StrCat(file_, ".partial");
  HADAL_RETURN_IF_ERROR(CheckIsNoneOf(path, inputs));
  HADAL_RETURN_IF_ERROR(CheckIsNoneOf(written_, inputs));
  if (!file_.empty()) HADAL_RETURN_IF_ERROR(CheckCreatable(file_));
  stream_.open(written_, std::ios::binary | (file_.empty() ? std::ios::app : std::ios::trunc));
  return stream_ ? absl::OkStatus() : CreationError(errno, written_);
}

absl::Status OutputFile::Finish() {
  if (!stream_.is_open()) return absl::OkStatus();
  stream_.close();
  if (!stream_) return absl::ResourceExhaustedError(absl::StrCat(path_, ": writing failed; is the disk full?"));
  return file_.empty() ? absl::OkStatus() : RenamePath(written_, file_);
}

}  // namespace hadal
