#include "runtime/text_line.h"

#include <array>
#include <ios>

#include "absl/strings/str_cat.h"

namespace hadal {

bool ReadLine(std::istream& in, std::string& line) {
  std::array<char, 4096> part;
  line.clear();
  while (line.size() <= kMostLineBytes) {
    in.getline(part.data(), part.size());
    const auto bytes = static_cast<size_t>(in.gcount());  // with the line end, if it was found
    if (in.bad()) return false;
    if (!in.fail() && !in.eof()) {
      line.append(part.data(), bytes - 1);
      return true;
    }
    line.append(part.data(), bytes);
    if (in.eof()) {
      if (!line.empty()) in.clear(std::ios_base::eofbit);
      return !line.empty();
    }
    in.clear();  // the part is full
  }
  in.setstate(std::ios_base::badbit);
  return false;
}

absl::Status ReadLineError(const std::string& name, int64_t lines, const std::string& line) {
  const std::string what = line.size() > kMostLineBytes
                               ? absl::StrCat("has more than ", kMostLineBytes, " bytes without a line end")
                               : "cannot be read";
  const bool returns = line.find('\r') != std::string::npos;
  return absl::InvalidArgumentError(absl::StrCat(
      name, ":", lines + 1, ": ", what,
      returns ? "; do its lines end in CR alone? `tr '\\r' '\\n'` converts them" : "; is it whole, and text?"));
}

}  // namespace hadal
