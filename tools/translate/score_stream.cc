#include "tools/translate/score_stream.h"

#include <algorithm>

#include "runtime/status_macros.h"

namespace hadal {

absl::StatusOr<TextBlock> StreamBlocks::Next() {
  const int64_t fresh = block_ - context_;
  while (!ended_ && std::ssize(stream_) - scored_ < fresh) HADAL_RETURN_IF_ERROR(ReadLine());
  const int64_t count = std::min(fresh, std::ssize(stream_) - scored_);
  if (count == 0) return TextBlock();
  TextBlock block{.context = std::min(context_, scored_ - 1)};
  const auto first = stream_.begin() + scored_ - block.context - 1;
  block.tokens.assign(first, stream_.begin() + scored_ + count);
  scored_ += count;
  // What later blocks read stays; the rest goes when it is more than half, so that a long line is moved few times.
  const int64_t passed = std::max<int64_t>(scored_ - context_ - 1, 0);
  if (2 * passed <= std::ssize(stream_)) return block;
  stream_.erase(stream_.begin(), stream_.begin() + passed);
  scored_ -= passed;
  return block;
}

absl::Status StreamBlocks::ReadLine() {
  std::vector<int32_t> tokens;
  HADAL_ASSIGN_OR_RETURN(const bool more, next_line_(tokens));
  ended_ = !more;
  if (!more) return absl::OkStatus();
  if (begun_ && form_.start_token != form_.end_token) stream_.push_back(form_.start_token);
  begun_ = true;
  stream_.insert(stream_.end(), tokens.begin(), tokens.end());
  stream_.push_back(form_.end_token);
  return absl::OkStatus();
}

}  // namespace hadal
