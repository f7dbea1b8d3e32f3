#include "pipeline/program_place.h"

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace hadal {

void ProgramPlace::Set(int64_t step, size_t index, size_t count, const Instruction& instruction) {
  const std::lock_guard lock(mutex_);
  since_ = absl::Now();
  step_ = step;
  index_ = index;
  count_ = count;
  instruction_ = instruction;
}

std::string ProgramPlace::Describe() const {
  const std::lock_guard lock(mutex_);
  if (count_ == 0) return "before the first step";
  return absl::StrCat("step ", step_, ", instruction ", index_ + 1, " of ", count_, ": ", ToString(instruction_));
}

absl::Time ProgramPlace::since() const {
  const std::lock_guard lock(mutex_);
  return since_;
}

}  // namespace hadal
