#include "tests/fuzz/mutator.h"

#include <algorithm>
#include <cctype>
#include <cstring>

#include "absl/strings/str_split.h"

namespace hadal::fuzz {
namespace {

constexpr char kNumbers[] =
    "0 -1 1 4294967295 4294967296 9223372036854775807 -9223372036854775808 18446744073709551615 18446744073709551616 "
    "1e999 1.5 00 null [] \"7\" 1048576 99999999999999999999999999";
constexpr char kTexts[] =  // the first one is empty
    " . .. ../outside ../../outside /etc/passwd a/b outside\\u0000 \\ud800 manifest.json rank_00000.safetensors "
    "__metadata__";
constexpr uint64_t kIntegers[] = {0,
                                  1,
                                  0x7f,
                                  0x80,
                                  0xff,
                                  0x7fffffff,
                                  0x80000000,
                                  0xffffffff,
                                  0x100000000,
                                  0x7fffffffffffffff,
                                  0x8000000000000000,
                                  0xffffffffffffffff};

}  // namespace

std::string Mutator::Next(const std::vector<std::string>& seeds) {
  std::string text = seeds[Draw(seeds.size())];
  for (uint64_t changes = 1 + Draw(8); changes > 0; --changes) Mutate(text, seeds);
  return text;
}

void Mutator::Mutate(std::string& text, const std::vector<std::string>& seeds) {
  const size_t at = Draw(text.size() + 1);
  const size_t length = std::min<size_t>(1 + Draw(Draw(4) == 0 ? 64 : 4), text.size() - at);
  switch (Draw(12)) {
    case 0:
      if (at < text.size()) text[at] = static_cast<char>(text[at] ^ (1 << Draw(8)));
      break;
    case 1:
      if (at < text.size()) text[at] = static_cast<char>(Draw(256));
      break;
    case 2:
      text.erase(at, length);
      break;
    case 3:
      text.insert(Draw(text.size() + 1), text.substr(at, length));
      break;
    case 4:
      text.insert(at, 1 + Draw(4), static_cast<char>(Draw(256)));
      break;
    case 5: {
      const std::string& other = seeds[Draw(seeds.size())];
      text = text.substr(0, at) + other.substr(Draw(other.size() + 1));
      break;
    }
    case 6:
    case 7:
      ReplaceNumber(text);
      break;
    case 8:
      ReplaceQuoted(text);
      break;
    case 9:
      ReplaceInteger(text);
      break;
    case 10:
      if (Draw(8) == 0) text.insert(at, 1 + Draw(20000), Draw(2) == 0 ? '[' : '{');
      break;
    case 11:
      if (Draw(4) == 0) text.resize(at);
      break;
  }
}

void Mutator::ReplaceNumber(std::string& text) {
  const auto is_digit = [](unsigned char c) { return std::isdigit(c) != 0; };
  const auto begin =
      std::find_if(text.begin() + static_cast<std::ptrdiff_t>(Draw(text.size() + 1)), text.end(), is_digit);
  const auto end = std::find_if_not(begin, text.end(), is_digit);
  const std::vector<std::string> numbers = absl::StrSplit(kNumbers, ' ');
  if (begin != text.end()) text.replace(begin, end, numbers[Draw(numbers.size())]);
}

void Mutator::ReplaceQuoted(std::string& text) {
  const size_t begin = text.find('"', Draw(text.size() + 1));
  const size_t end = begin == std::string::npos ? begin : text.find('"', begin + 1);
  if (end == std::string::npos) return;
  const std::vector<std::string> texts = absl::StrSplit(kTexts, ' ');
  const std::string name = Draw(16) == 0 ? std::string(5000, 'x') : texts[Draw(texts.size())];
  text.replace(begin + 1, end - begin - 1, name);
}

// Little-endian, as in binary headers.
void Mutator::ReplaceInteger(std::string& text) {
  const size_t bytes = Draw(2) == 0 ? 4 : 8;
  if (text.size() < bytes) return;
  // Fields are aligned; the first ones decide most.
  const size_t at = Draw(std::min<size_t>(text.size() - bytes, 128) / 4 + 1) * 4;
  const uint64_t value = kIntegers[Draw(std::size(kIntegers))] + Draw(3) - 1;
  if (at + bytes <= text.size()) std::memcpy(text.data() + at, &value, bytes);
}

}  // namespace hadal::fuzz
