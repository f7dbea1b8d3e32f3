#include "pipeline/checkpoint/checkpoint_reader.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "runtime/check.h"
#include "runtime/crc32c.h"
#include "runtime/run_directory.h"
#include "runtime/status_macros.h"
#include "runtime/stream.h"

namespace hadal {
namespace {

constexpr size_t kMaxOpenFiles = 32;
constexpr int kMostTries = 100;  // to open what a run replaces at the same time
constexpr int64_t kChunkBytes = int64_t{4} << 20;

absl::Status CrcError(std::string_view what, std::string_view where, uint32_t actual, uint32_t expected) {
  return DataLossError(absl::StrFormat("%s in %s is damaged: its CRC32C is %08x, the manifest says %08x", what, where,
                                       actual, expected));
}

// Names the file in a message that begins with "manifest: ".
absl::Status InManifest(const std::string& directory, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(JoinPath(directory, kManifestName), ": ",
                                                  absl::StripPrefix(status.message(), "manifest: ")));
}

bool IsLink(const std::string& path) {
  struct stat info;
  return lstat(path.c_str(), &info) == 0 && S_ISLNK(info.st_mode);
}

bool IsNamedAsCheckpoint(const std::string& directory) { return ParseCheckpointName(BaseName(directory)).has_value(); }

absl::Status NoCheckpoint(const std::string& directory, const absl::Status& why) {
  return NotFoundError(directory, " is not a checkpoint: ", why.message(),
                       " (`hadal checkpoint ls RUN_DIR` lists those of a run)");
}

absl::StatusOr<uint32_t> FileCrc(const FileDescriptor& file, const std::string& path,
                                 absl::FunctionRef<void(int64_t bytes)> read) {
  HADAL_ASSIGN_OR_RETURN(const int64_t bytes, FileBytes(file, path));
  std::string buffer(static_cast<size_t>(std::min(bytes, kChunkBytes)), '\0');
  uint32_t crc = 0;
  for (int64_t at = 0; at < bytes; at += kChunkBytes) {
    const int64_t count = std::min(kChunkBytes, bytes - at);
    HADAL_RETURN_IF_ERROR(ReadAt(file, at, count, buffer.data(), path));
    crc = Crc32c(buffer.data(), static_cast<size_t>(count), crc);
    read(count);
  }
  return crc;
}

}  // namespace

bool IsDamage(const absl::Status& error) { return absl::IsNotFound(error) || absl::IsDataLoss(error); }

absl::Status AdviseAnotherCheckpoint(const absl::Status& status) {
  if (!absl::IsDataLoss(status)) return status;
  absl::Status advised = DataLossError(
      status.message(),
      "; `hadal checkpoint verify RUN_DIR` reads all checkpoints of a run: give one that it calls ok, or a copy");
  // A common error (runtime/comm/collectives.h) stays one.
  status.ForEachPayload([&](absl::string_view name, const absl::Cord& value) { advised.SetPayload(name, value); });
  return advised;
}

CheckpointReader::CheckpointReader(CheckpointReader&&) noexcept = default;
CheckpointReader& CheckpointReader::operator=(CheckpointReader&&) noexcept = default;
CheckpointReader::~CheckpointReader() = default;

absl::StatusOr<CheckpointReader> CheckpointReader::Open(const std::string& directory) {
  for (int tries = 1;; ++tries) {
    CheckpointReader reader(directory);
    absl::Status status = reader.OpenHere();
    if (status.ok()) status = reader.UnlessRemoved(reader.ReadManifest());
    if (status.ok()) status = reader.UnlessRemoved(reader.OpenFiles());
    if (status.ok()) return reader;
    // Another checkpoint may have that name now: it was saved again, or a link leads to a newer one.
    const bool again = absl::IsNotFound(status) && PathExists(JoinPath(directory, kManifestName));
    if (!again || tries == kMostTries) return status;
  }
}

absl::StatusOr<CheckpointReader> CheckpointReader::Open(const std::string& directory, CheckpointManifest manifest) {
  CheckpointReader reader(directory);
  reader.manifest_ = std::move(manifest);
  HADAL_RETURN_IF_ERROR(reader.OpenHere());
  HADAL_RETURN_IF_ERROR(reader.UnlessRemoved(reader.OpenFiles()));
  return reader;
}

absl::Status CheckpointReader::OpenHere() {
  absl::StatusOr<FileDescriptor> opened = OpenDirectory(directory_);
  const bool other_kind =  // including a link that leads nowhere
      absl::IsFailedPrecondition(opened.status()) || (absl::IsNotFound(opened.status()) && IsLink(directory_));
  if (other_kind && IsNamedAsCheckpoint(directory_)) return DataLossError(opened.status().message());
  if (other_kind || absl::IsNotFound(opened.status())) return NoCheckpoint(directory_, opened.status());
  HADAL_RETURN_IF_ERROR(opened.status());
  opened_directory_ = *std::move(opened);
  return absl::OkStatus();
}

absl::Status CheckpointReader::ReadManifest() {
  const absl::StatusOr<FileDescriptor> file = OpenFileIn(opened_directory_, directory_, kManifestName);
  if (absl::IsNotFound(file.status())) {
    if (!IsNamedAsCheckpoint(directory_)) return NoCheckpoint(directory_, file.status());
    return DataLossError(directory_, " has no ", kManifestName);
  }
  HADAL_RETURN_IF_ERROR(file.status());
  const absl::StatusOr<std::string> text = ReadWhole(*file, JoinPath(directory_, kManifestName), kMaxManifestBytes);
  if (absl::IsInvalidArgument(text.status())) return DataLossError(text.status().message());  // too large
  HADAL_RETURN_IF_ERROR(text.status());
  absl::StatusOr<CheckpointManifest> manifest = CheckpointManifest::Parse(*text);
  if (!manifest.ok()) return InManifest(directory_, manifest.status());
  manifest_ = *std::move(manifest);
  return absl::OkStatus();
}

absl::Status CheckpointReader::OpenFiles() {
  const std::optional<int64_t> named = ParseCheckpointName(BaseName(directory_));
  if (named && *named != manifest_.progress.step) {
    return DataLossError(directory_, " is named after step ", *named, ", its manifest is of step ",
                         manifest_.progress.step);
  }
  for (const WrittenFile& file : manifest_.files) HADAL_RETURN_IF_ERROR(OpenAndKeep(file.name, file.bytes));
  for (const AttachedFile& file : manifest_.attachments) HADAL_RETURN_IF_ERROR(OpenAndKeep(file.name, file.bytes));
  IndexLocations();
  return absl::OkStatus();
}

absl::Status CheckpointReader::OpenAndKeep(const std::string& name, int64_t bytes) {
  const std::string path = JoinPath(directory_, name);
  absl::StatusOr<FileDescriptor> file = OpenFileIn(opened_directory_, directory_, name);
  if (absl::IsNotFound(file.status())) return DataLossError(path, " is missing");
  HADAL_RETURN_IF_ERROR(file.status());
  HADAL_ASSIGN_OR_RETURN(const int64_t actual, FileBytes(*file, path));
  if (actual != bytes) {
    return DataLossError(path, " has ", actual, " bytes, the manifest says ", bytes,
                         actual < bytes ? ": cut short" : "");
  }
  if (kept_.size() < kMostKeptFiles) kept_[name] = std::make_shared<const FileDescriptor>(*std::move(file));
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const FileDescriptor>> CheckpointReader::FileNamed(const std::string& name) const {
  if (const auto kept = kept_.find(name); kept != kept_.end()) return kept->second;
  HADAL_ASSIGN_OR_RETURN(FileDescriptor file, OpenFileIn(opened_directory_, directory_, name));
  return std::make_shared<const FileDescriptor>(std::move(file));
}

absl::Status CheckpointReader::UnlessRemoved(const absl::Status& status) const {
  if (!IsDamage(status)) return status;
  struct stat opened, there;
  if (fstat(opened_directory_.get(), &opened) != 0) return ErrnoStatus(errno, "stat", directory_);
  const bool in_place =
      stat(directory_.c_str(), &there) == 0 && there.st_dev == opened.st_dev && there.st_ino == opened.st_ino;
  if (in_place) return status;
  return NotFoundError(directory_,
                       " was removed or replaced while it was read; a run removes old checkpoints "
                       "(checkpoint.keep_last): give the run directory for its newest one");
}

void CheckpointReader::IndexLocations() {
  first_slice_.assign(1, 0);
  for (const CheckpointParameter& parameter : manifest_.parameters) {
    first_slice_.push_back(first_slice_.back() + parameter.slices());
  }
  locations_.resize(static_cast<size_t>(first_slice_.back()) * kStateKinds.size());
  for (int32_t f = 0; f < static_cast<int32_t>(manifest_.files.size()); ++f) {
    int32_t tensor = 0;
    for (const WrittenSlice& slice : manifest_.files[f].slices) {
      Location* locations = &locations_[(first_slice_[slice.parameter] + slice.slice) * kStateKinds.size()];
      for (size_t kind = 0; kind < kStateKinds.size(); ++kind) {
        if (slice.crc32c[kind]) locations[kind] = {.file = f, .tensor = tensor++, .crc32c = *slice.crc32c[kind]};
      }
    }
  }
}

const CheckpointReader::Location& CheckpointReader::LocationOf(StateKind kind, int32_t parameter, int64_t slice) const {
  HADAL_CHECK_GE(parameter, 0);
  HADAL_CHECK_LT(parameter, static_cast<int32_t>(manifest_.parameters.size()));
  HADAL_CHECK_GE(slice, 0);
  HADAL_CHECK_LT(slice, manifest_.parameters[parameter].slices());
  return locations_[(first_slice_[parameter] + slice) * kStateKinds.size() + static_cast<size_t>(kind)];
}

absl::StatusOr<SafetensorsReader*> CheckpointReader::OpenFile(int32_t file) {
  const auto found = std::ranges::find(opened_, file, &OpenedFile::file);
  if (found != opened_.end()) {
    std::rotate(found, found + 1, opened_.end());
    return opened_.back().reader.get();
  }
  if (opened_.size() >= kMaxOpenFiles) opened_.erase(opened_.begin());
  const std::string& name = manifest_.files[file].name;
  HADAL_ASSIGN_OR_RETURN(std::shared_ptr<const FileDescriptor> opened, FileNamed(name));
  HADAL_ASSIGN_OR_RETURN(SafetensorsReader reader,
                         SafetensorsReader::Open(JoinPath(directory_, name), std::move(opened)));
  HADAL_RETURN_IF_ERROR(CheckHeader(reader, manifest_.files[file]));
  opened_.push_back({.file = file, .reader = std::make_unique<SafetensorsReader>(std::move(reader))});
  return opened_.back().reader.get();
}

absl::Status CheckpointReader::CheckHeader(const SafetensorsReader& reader, const WrittenFile& file) const {
  if (reader.file_bytes() != file.bytes || reader.header_bytes() != file.header_bytes ||
      reader.header_crc32c() != file.header_crc32c) {
    const auto step = reader.metadata().find("step");
    return DataLossError(
        reader.path(), " is not the file that the manifest means: its header differs",
        step == reader.metadata().end() || step->second == absl::StrCat(manifest_.progress.step)
            ? ""
            : absl::StrCat(" (it is of step ", step->second, ", the manifest of step ", manifest_.progress.step, ")"));
  }
  size_t tensor = 0;
  for (const WrittenSlice& slice : file.slices) {
    const CheckpointParameter& parameter = manifest_.parameters[slice.parameter];
    for (size_t kind = 0; kind < kStateKinds.size(); ++kind) {
      if (!slice.crc32c[kind]) continue;
      const SafetensorsTensor expected = {.name = StateKey(kStateKinds[kind], parameter.name, slice.slice),
                                          .type = SafetensorsType::kF32,
                                          .shape = {parameter.slice_elements(slice.slice)}};
      if (tensor >= reader.tensors().size() || reader.tensors()[tensor] != expected) {
        return DataLossError(reader.path(), ": the manifest lists ", expected.name, " as its tensor ", tensor,
                             ", its header something else");
      }
      ++tensor;
    }
  }
  if (tensor != reader.tensors().size()) {
    return DataLossError(reader.path(), " holds tensors that the manifest does not list");
  }
  return absl::OkStatus();
}

absl::Status CheckpointReader::Verify(absl::FunctionRef<void(int64_t bytes)> verified) {
  return UnlessRemoved(VerifyAll(verified));
}

absl::Status CheckpointReader::VerifyAll(absl::FunctionRef<void(int64_t bytes)> verified) {
  for (int32_t f = 0; f < static_cast<int32_t>(manifest_.files.size()); ++f) {
    HADAL_RETURN_IF_ERROR(VerifyFile(f, verified));
  }
  for (const AttachedFile& file : manifest_.attachments) HADAL_RETURN_IF_ERROR(ReadAttachmentHere(file).status());
  return absl::OkStatus();
}

absl::Status CheckpointReader::VerifyFile(int32_t file, absl::FunctionRef<void(int64_t bytes)> verified) {
  const WrittenFile& written = manifest_.files[file];
  // Slice by slice first, because that names what is damaged.
  HADAL_ASSIGN_OR_RETURN(const SafetensorsReader* reader, OpenFile(file));
  std::vector<float> buffer;
  int32_t tensor = 0;
  for (const WrittenSlice& slice : written.slices) {
    for (const std::optional<uint32_t>& expected : slice.crc32c) {
      if (!expected) continue;
      const SafetensorsTensor& entry = reader->tensors()[tensor];
      buffer.resize(static_cast<size_t>(entry.shape[0]));
      HADAL_RETURN_IF_ERROR(reader->Read(tensor, 0, entry.bytes(), buffer.data()));
      const uint32_t actual = Crc32c(buffer.data(), static_cast<size_t>(entry.bytes()));
      if (actual != *expected) return CrcError(entry.name, reader->path(), actual, *expected);
      verified(entry.bytes());
      ++tensor;
    }
  }
  HADAL_ASSIGN_OR_RETURN(const std::shared_ptr<const FileDescriptor> whole, FileNamed(written.name));
  HADAL_ASSIGN_OR_RETURN(const uint32_t crc, FileCrc(*whole, reader->path(), verified));
  if (crc != written.crc32c) return CrcError("the whole", reader->path(), crc, written.crc32c);
  return absl::OkStatus();
}

absl::Status CheckpointReader::ReadSlices(std::span<const SliceState> wanted, Device* device) {
  return UnlessRemoved(ReadSlicesHere(wanted, device));
}

absl::Status CheckpointReader::ReadSlicesHere(std::span<const SliceState> wanted, Device* device) {
  struct Read {
    const Location* location;
    const Vector* destination;
  };
  std::vector<Read> reads;
  for (const SliceState& slice : wanted) {
    for (const StateKind kind : kStateKinds) {
      const Vector& destination = slice.view(kind);
      if (destination.empty()) continue;
      const Location& location = LocationOf(kind, slice.parameter, slice.slice);
      HADAL_CHECK_EQ(destination.size, manifest_.parameters[slice.parameter].slice_elements(slice.slice));
      if (location.file < 0) {
        return FailedPreconditionError(
            directory_,
            " holds weights only, without Adam's moments (an average?): training cannot continue from "
            "it; start a new run with --init-from, or choose another checkpoint");
      }
      reads.push_back({.location = &location, .destination = &destination});
    }
  }
  std::ranges::sort(reads, {}, [](const Read& read) { return std::pair(read.location->file, read.location->tensor); });
  std::vector<float> passing;  // a slice on its way to the device
  for (const Read& read : reads) {
    HADAL_ASSIGN_OR_RETURN(const SafetensorsReader* reader, OpenFile(read.location->file));
    const SafetensorsTensor& tensor = reader->tensors()[read.location->tensor];
    if (device != nullptr) passing.resize(read.destination->size);
    float* const to = device != nullptr ? passing.data() : read.destination->data;
    HADAL_RETURN_IF_ERROR(reader->Read(read.location->tensor, 0, tensor.bytes(), to));
    const uint32_t crc = Crc32c(to, static_cast<size_t>(tensor.bytes()));
    if (crc != read.location->crc32c) return CrcError(tensor.name, reader->path(), crc, read.location->crc32c);
    if (device != nullptr) device->CopyIn(read.destination->data, to, tensor.bytes());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> CheckpointReader::ReadAttachment(const std::string& name) {
  for (const AttachedFile& file : manifest_.attachments) {
    if (file.name != name) continue;
    absl::StatusOr<std::string> contents = ReadAttachmentHere(file);
    if (!contents.ok()) return UnlessRemoved(contents.status());
    return contents;
  }
  return NotFoundError(directory_, " carries no file named ", name);
}

absl::StatusOr<std::string> CheckpointReader::ReadAttachmentHere(const AttachedFile& file) const {
  const std::string path = JoinPath(directory_, file.name);
  HADAL_ASSIGN_OR_RETURN(const std::shared_ptr<const FileDescriptor> opened, FileNamed(file.name));
  std::string contents(static_cast<size_t>(file.bytes), '\0');
  HADAL_RETURN_IF_ERROR(ReadAt(*opened, 0, file.bytes, contents.data(), path));
  const uint32_t crc = Crc32c(contents.data(), contents.size());
  if (crc != file.crc32c) return CrcError("the content", path, crc, file.crc32c);
  return contents;
}

}  // namespace hadal
