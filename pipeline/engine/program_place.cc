#include "pipeline/engine/program_place.h"

#include "absl/strings/str_cat.h"
#include "runtime/clock.h"

namespace hadal {

void ProgramPlace::Set(int64_t step, size_t index, size_t count, const Instruction& instruction) {
  const std::lock_guard lock(mutex_);
  since_seconds_ = MonotonicSeconds();
  step_ = step;
  index_ = index;
  count_ = count;
  instruction_ = instruction;
}

std::string ProgramPlace::Describe() const {
  const std::lock_guard lock(mutex_);
  if (count_ == 0) return "before the first step";
  return absl::StrCat("step ", step_ + 1, ", instruction ", index_ + 1, " of ", count_, ": ", ToString(instruction_));
}

std::optional<double> ProgramPlace::since_seconds() const {
  const std::lock_guard lock(mutex_);
  return since_seconds_;
}

}  // namespace hadal
