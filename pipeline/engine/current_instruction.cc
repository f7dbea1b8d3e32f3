#include "pipeline/engine/current_instruction.h"

#include "absl/strings/str_cat.h"
#include "runtime/clock.h"

namespace hadal {

void CurrentInstruction::Set(int64_t step, size_t index, size_t count, const Instruction& instruction) {
  const std::lock_guard lock(mutex_);
  since_seconds_ = MonotonicSeconds();
  step_ = step;
  index_ = index;
  count_ = count;
  instruction_ = instruction;
}

std::string CurrentInstruction::Describe() const {
  const std::lock_guard lock(mutex_);
  if (count_ == 0) return "before the first step";
  return absl::StrCat("step ", step_ + 1, ", instruction ", index_ + 1, " of ", count_, ": ", ToString(instruction_));
}

std::optional<double> CurrentInstruction::since_seconds() const {
  const std::lock_guard lock(mutex_);
  return since_seconds_;
}

}  // namespace hadal
