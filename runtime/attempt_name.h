// An attempt is one launch of a run. Its name is a part of file names (runtime/run_directory.h).
#pragma once

#include <string_view>

namespace hadal {

// Whether `text` is an attempt's name: three hexadecimal numbers separated by '-', the last with 8 digits
// (NewCheckpointAttempt in pipeline/checkpoint/run_owner.h makes one).
inline bool IsAttempt(std::string_view text) {
  int parts = 1, digits = 0;
  for (const char c : text) {
    if (c == '-' && digits == 0) return false;
    if (c != '-' && !(c >= '0' && c <= '9') && !(c >= 'a' && c <= 'f')) return false;
    digits = c == '-' ? 0 : digits + 1;
    parts += c == '-';
  }
  return parts == 3 && digits == 8;
}

}  // namespace hadal
