#include "tools/corpus/text_lines.h"

#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"
#include "runtime/text_line.h"
#include "runtime/utf8.h"
#include "tools/corpus/plain_text.h"

namespace hadal {

absl::StatusOr<bool> TextLines::Next(std::string& line) {
  if (!ReadLine(in_, line)) {
    if (in_.bad()) return ReadLineError(name_, lines_, line);
    return false;
  }
  ++lines_;
  if (lines_ == 1) HADAL_RETURN_IF_ERROR(CheckIsPlainText(name_, line));
  const bool marked = lines_ == 1 && mark_ == ByteOrderMark::kRemoved && line.starts_with(kByteOrderMark);
  if (marked) line.erase(0, sizeof(kByteOrderMark) - 1);
  if (line.ends_with('\r')) line.pop_back();
  const size_t valid = ValidUtf8Prefix(line);
  if (valid == line.size()) return true;
  return absl::InvalidArgumentError(absl::StrCat(name_, ":", lines_, ": not UTF-8 from byte ", valid + 1,
                                                 " of the line on; convert it, for example with iconv"));
}

}  // namespace hadal
