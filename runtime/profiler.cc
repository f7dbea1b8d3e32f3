#include "runtime/profiler.h"

#include "absl/strings/str_cat.h"

namespace hadal {

void ProfilerRange::Begin(const char* what, int64_t number) {
  profiler_->Begin(absl::StrCat(what, " ", number).c_str());
}

}  // namespace hadal
