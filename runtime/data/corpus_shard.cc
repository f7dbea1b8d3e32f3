#include "runtime/data/corpus_shard.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "runtime/bytes.h"
#include "runtime/check.h"
#include "runtime/crc32c.h"
#include "runtime/data/packed_batch.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

static_assert(std::endian::native == std::endian::little, "shards are mapped as they are: little-endian machines only");

constexpr int64_t kMaxSideTokens = std::numeric_limits<int32_t>::max();

absl::Status Damaged(const std::string& name, absl::string_view what) {
  return DataLossError(name, ": ", what,
                       "; the file is damaged or not the one its manifest was written with: restore "
                       "it from a copy, or run hadal prepare again");
}

// `mark`: a bit that tokens may have besides their id.
absl::Status CheckTokens(std::span<const int32_t> tokens, int32_t least, int32_t vocabulary_size,
                         absl::string_view side, int32_t mark = 0) {
  const auto is_text = [=](int32_t token) { return (token & ~mark) >= least && (token & ~mark) < vocabulary_size; };
  bool all = true;  // no early exit, so that the compiler can vectorise
  for (const int32_t token : tokens) all &= is_text(token);
  if (all) return absl::OkStatus();
  const auto bad = std::ranges::find_if_not(tokens, is_text);
  return DataLossError("its ", side, " has the token id ", *bad, ", the ids of text are ", least, " to ",
                       vocabulary_size - 1);
}

absl::Status CheckFrames(std::span<const float> values) {
  bool all = true;  // no early exit, so that the compiler can vectorise
  for (const float value : values) all &= std::isfinite(value);
  return all ? absl::OkStatus() : DataLossError("its frames have a value that is not finite");
}

absl::Status CheckFrameCount(const SampleRecord& record, int32_t frame_width) {
  if (record.prefix_tokens == 0 && record.source_tokens > 0 && record.source_tokens % frame_width == 0) {
    return absl::OkStatus();
  }
  return DataLossError("its source has ", record.source_tokens, " values and a prefix of ", record.prefix_tokens,
                       " tokens, expected one or more whole frames of ", frame_width, " values and no prefix");
}

// Checks a record, except the place of its tokens.
absl::Status CheckRecord(const SampleRecord& record, int32_t corpora, int32_t least_target) {
  if (record.prefix_tokens < 0 || record.source_tokens < 0 || record.target_tokens < 0) {
    return DataLossError("it has a side with a negative length");
  }
  if (record.target_tokens < least_target) {
    return DataLossError("it has ", record.target_tokens, " tokens, a block has ", least_target, " or more");
  }
  if (record.corpus_id < 0 || record.corpus_id >= corpora) {
    return DataLossError("its corpus id is ", record.corpus_id, ", there are ", corpora, " corpora");
  }
  if (!std::isfinite(record.weight) || record.weight < 0) return DataLossError("its weight is ", record.weight);
  return absl::OkStatus();
}

// Checks that a record's tokens follow those of the previous record without a gap.
absl::Status CheckPlace(const SampleRecord& record, int64_t expected, int64_t tokens) {
  if (record.first_token != expected) {
    return DataLossError("its tokens begin at ", record.first_token, ", the samples before it end at ", expected);
  }
  const int64_t count = int64_t{record.prefix_tokens} + record.source_tokens + record.target_tokens;
  if (count > tokens - expected) {
    return DataLossError("it has ", count, " tokens, the shard has only ", tokens - expected, " left");
  }
  return absl::OkStatus();
}

// Reads a record that another program may be writing: each number once, so that what is checked is what is used.
SampleRecord ReadRecord(const SampleRecord& mapped) {
  return {.first_token = __atomic_load_n(&mapped.first_token, __ATOMIC_RELAXED),
          .prefix_tokens = __atomic_load_n(&mapped.prefix_tokens, __ATOMIC_RELAXED),
          .source_tokens = __atomic_load_n(&mapped.source_tokens, __ATOMIC_RELAXED),
          .target_tokens = __atomic_load_n(&mapped.target_tokens, __ATOMIC_RELAXED),
          .corpus_id = mapped.corpus_id,
          .weight = mapped.weight};
}

bool IsInside(const SampleRecord& record, size_t tokens) {
  if (record.prefix_tokens < 0 || record.source_tokens < 0 || record.target_tokens < 0) return false;
  const int64_t count = int64_t{record.prefix_tokens} + record.source_tokens + record.target_tokens;
  const auto limit = static_cast<int64_t>(tokens);
  return record.first_token >= 0 && record.first_token <= limit && count <= limit - record.first_token;
}

SampleView ViewOf(const SampleRecord& record, std::span<const int32_t> tokens, int32_t frame_width) {
  const auto first = static_cast<size_t>(record.first_token);
  const auto prefix = static_cast<size_t>(record.prefix_tokens);
  const auto source = static_cast<size_t>(record.source_tokens);
  SampleView view = {.corpus_id = record.corpus_id,
                     .weight = record.weight,
                     .prefix = tokens.subspan(first, prefix),
                     .source = tokens.subspan(first + prefix, source),
                     .target = tokens.subspan(first + prefix + source, static_cast<size_t>(record.target_tokens))};
  if (frame_width > 0) {
    const auto whole = source - source % static_cast<size_t>(frame_width);  // a changed file may have another count
    view.frames = {reinterpret_cast<const float*>(view.source.data()), whole};
    view.source = {};
  }
  return view;
}

absl::Status CheckSample(const SampleRecord& record, int64_t expected, std::span<const int32_t> tokens,
                         const ShardLimits& limits, ShardCheck check) {
  HADAL_RETURN_IF_ERROR(CheckRecord(record, limits.corpora, limits.least_target));
  if (limits.frame_width > 0) HADAL_RETURN_IF_ERROR(CheckFrameCount(record, limits.frame_width));
  HADAL_RETURN_IF_ERROR(CheckPlace(record, expected, static_cast<int64_t>(tokens.size())));
  if (check == ShardCheck::kRecords) return absl::OkStatus();
  const SampleView sample = ViewOf(record, tokens, limits.frame_width);
  HADAL_RETURN_IF_ERROR(CheckFrames(sample.frames));
  HADAL_RETURN_IF_ERROR(CheckTokens(sample.prefix, limits.least_token, limits.source_vocabulary_size, "prefix"));
  HADAL_RETURN_IF_ERROR(CheckTokens(sample.source, limits.least_token, limits.source_vocabulary_size, "source"));
  const bool plain = limits.source_vocabulary_size == 0 && limits.frame_width == 0;
  return CheckTokens(sample.target, limits.least_token, limits.target_vocabulary_size, "target",
                     plain ? kContinuesWord : 0);
}

absl::Status CheckHeader(const ShardHeader& header, size_t bytes) {
  if (header.magic != ShardHeader::kMagic) return DataLossError("it does not begin with a shard's header");
  if (header.version != ShardHeader::kVersion) {
    return DataLossError("it has format version ", header.version, ", this hadal reads ", ShardHeader::kVersion);
  }
  // Bounds first, so that no product below can overflow.
  const auto limit = static_cast<int64_t>(bytes);
  const bool plausible = header.samples >= 0 && header.tokens >= 0 && header.samples <= limit && header.tokens <= limit;
  const int64_t wanted = plausible ? int64_t{sizeof(ShardHeader)} + header.samples * int64_t{sizeof(SampleRecord)} +
                                         header.tokens * int64_t{sizeof(int32_t)}
                                   : -1;
  if (wanted != limit) {
    return DataLossError("its header states ", header.samples, " samples and ", header.tokens,
                         " tokens, which does not match its ", bytes, " bytes");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ShardBuilder::Add(const SampleView& sample) {
  const size_t source = sample.source.size() + sample.frames.size();  // one of them is empty
  for (const size_t count : {sample.prefix.size(), source, sample.target.size()}) {
    if (count > static_cast<size_t>(kMaxSideTokens)) {
      return InvalidArgumentError("a side of ", count, " tokens or values; at most ", kMaxSideTokens);
    }
  }
  records_.push_back({.first_token = static_cast<int64_t>(tokens_.size()),
                      .prefix_tokens = static_cast<int32_t>(sample.prefix.size()),
                      .source_tokens = static_cast<int32_t>(source),
                      .target_tokens = static_cast<int32_t>(sample.target.size()),
                      .corpus_id = sample.corpus_id,
                      .weight = sample.weight});
  tokens_.insert(tokens_.end(), sample.prefix.begin(), sample.prefix.end());
  tokens_.insert(tokens_.end(), sample.source.begin(), sample.source.end());
  for (const float value : sample.frames) tokens_.push_back(std::bit_cast<int32_t>(value));
  tokens_.insert(tokens_.end(), sample.target.begin(), sample.target.end());
  return absl::OkStatus();
}

int64_t ShardBuilder::bytes() const {
  return static_cast<int64_t>(sizeof(ShardHeader) + records_.size() * sizeof(SampleRecord) +
                              tokens_.size() * sizeof(int32_t));
}

std::array<std::string_view, 3> ShardBuilder::Pieces() {
  header_ = {.samples = samples(), .tokens = static_cast<int64_t>(tokens_.size())};
  return {AsBytes(std::span(&header_, 1)), AsBytes(records_), AsBytes(tokens_)};
}

void ShardBuilder::Clear() {
  records_.clear();
  tokens_.clear();
}

absl::StatusOr<std::unique_ptr<CorpusShard>> CorpusShard::Open(const std::string& path, const ShardReference& reference,
                                                               const ShardLimits& limits, ShardCheck check) {
  HADAL_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  const std::span<const std::byte> bytes = file.bytes();
  if (static_cast<int64_t>(bytes.size()) != reference.bytes) {
    return Damaged(path, absl::StrCat("it has ", bytes.size(), " bytes, its manifest says ", reference.bytes));
  }
  const uint32_t crc = check == ShardCheck::kEveryByte ? Crc32c(bytes) : reference.crc32c;
  if (crc != reference.crc32c) {
    return Damaged(path, absl::StrCat("its checksum is ", absl::Hex(crc, absl::kZeroPad8), ", its manifest says ",
                                      absl::Hex(reference.crc32c, absl::kZeroPad8)));
  }
  std::unique_ptr<CorpusShard> shard(new CorpusShard(std::move(file)));
  shard->path_ = path;
  shard->crc32c_ = reference.crc32c;
  shard->verified_nanoseconds_ = shard->file_.stamp().modified_nanoseconds;
  if (const absl::Status status = shard->Parse(bytes, limits, check); !status.ok()) {
    return Damaged(path, status.message());
  }
  if (shard->samples() != reference.samples) {
    return Damaged(path, absl::StrCat("it has ", shard->samples(), " samples, its manifest says ", reference.samples));
  }
  return shard;
}

absl::Status CorpusShard::Parse(std::span<const std::byte> bytes, const ShardLimits& limits, ShardCheck check) {
  ShardHeader header;
  if (bytes.size() < sizeof(header)) {
    return DataLossError("it has ", bytes.size(), " bytes, a header alone takes ", sizeof(header));
  }
  std::memcpy(&header, bytes.data(), sizeof(header));
  HADAL_RETURN_IF_ERROR(CheckHeader(header, bytes.size()));
  const auto samples = static_cast<size_t>(header.samples);
  const std::byte* records = bytes.data() + sizeof(header);
  const std::byte* tokens = records + samples * sizeof(SampleRecord);
  records_ = {reinterpret_cast<const SampleRecord*>(records), samples};
  tokens_ = {reinterpret_cast<const int32_t*>(tokens), static_cast<size_t>(header.tokens)};
  has_source_ = limits.source_vocabulary_size > 0 || limits.frame_width > 0;
  frame_width_ = limits.frame_width;

  int64_t expected = 0;
  for (size_t i = 0; i < samples; ++i) {
    const SampleRecord& record = records_[i];
    if (const absl::Status status = CheckSample(record, expected, tokens_, limits, check); !status.ok()) {
      return DataLossError("sample ", i, ": ", status.message());
    }
    expected += int64_t{record.prefix_tokens} + record.source_tokens + record.target_tokens;
  }
  if (expected != header.tokens) {
    return DataLossError("its samples have ", expected, " tokens, its header says ", header.tokens);
  }
  return absl::OkStatus();
}

SampleView CorpusShard::sample(int64_t i) const {
  HADAL_CHECK_GE(i, 0);
  HADAL_CHECK_LT(i, samples());
  const SampleRecord record = ReadRecord(records_[static_cast<size_t>(i)]);
  SampleView view = IsInside(record, tokens_.size()) ? ViewOf(record, tokens_, frame_width_) : SampleView();
  view.has_source = has_source_;
  view.frame_width = frame_width_;
  return view;
}

absl::Status CorpusShard::CheckUnchanged() const {
  const absl::StatusOr<FileStamp> now = StampOf(path_);
  const FileStamp& opened = file_.stamp();
  // Another file has that name, or none: the mapping holds the verified one as long as it exists.
  if (!now.ok() || now->device != opened.device || now->inode != opened.inode) return absl::OkStatus();
  if (now->bytes == opened.bytes && now->modified_nanoseconds == verified_nanoseconds_) return absl::OkStatus();
  if (now->bytes != opened.bytes || Crc32c(file_.bytes()) != crc32c_) {
    return DataLossError(
        path_, ": it was changed while it was in use; restore it from a copy, or run hadal prepare again, and resume");
  }
  verified_nanoseconds_ = now->modified_nanoseconds;
  return absl::OkStatus();
}

}  // namespace hadal
