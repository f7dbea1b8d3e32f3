// What a person may limit, and what a job may agree on. What changes the process is done in a child of it.
#include "kernels/instruction_set.h"

#include <cstdlib>
#include <initializer_list>
#include <optional>

#include "gtest/gtest.h"
#include "hwy/highway.h"
#include "hwy/targets.h"
#include "kernels/cpu/product.h"

namespace hadal {
namespace {

// Sets a variable, or removes it, and puts it back in the end.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* const before = std::getenv(name)) before_ = before;
    value == nullptr ? unsetenv(name) : setenv(name, value, 1);
  }
  ~Variable() { before_ ? setenv(name_, before_->c_str(), 1) : unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

InstructionSets Available(const char* limit) {
  const Variable variable("HADAL_MAX_CPU_ISA", limit);
  return AvailableInstructionSets();
}

TEST(InstructionSets, TheNameIsTheWidestSets) {
  EXPECT_EQ(InstructionSetName(0), "unknown");
  EXPECT_EQ(InstructionSetName(HWY_AVX2), "AVX2");
  EXPECT_EQ(InstructionSetName(HWY_SSE4 | HWY_AVX2), "AVX2");
  EXPECT_EQ(InstructionSetName(HWY_SSE4 | HWY_AVX2 | HWY_AVX3), "AVX3");
}

TEST(InstructionSets, ThoseOfThisCpuAreWhatKernelsDispatchTo) {
  InstructionSets dispatched = 0;
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) dispatched |= target;
  EXPECT_EQ(Available(nullptr), dispatched);
}

#if HWY_ARCH_X86

TEST(InstructionSets, TheWidestDecidesWhetherMultiplyAddIsFused) {
  EXPECT_TRUE(HasFusedMultiplyAdd(HWY_AVX2));
  EXPECT_TRUE(HasFusedMultiplyAdd(HWY_SSE4 | HWY_AVX3));
  EXPECT_FALSE(HasFusedMultiplyAdd(HWY_SSE4));
}

// Everything wider is gone and all else stays, whatever Highway's version calls the wider ones.
TEST(InstructionSets, ALimitTakesAwayWhatIsWider) {
  const InstructionSets all = Available(nullptr);
  const struct {
    const char* limit;
    InstructionSets widest;
  } cases[] = {{"AVX3", HWY_AVX3}, {"AVX2", HWY_AVX2}, {"avx2", HWY_AVX2}, {"SSE4", HWY_SSE4}};
  for (const auto& [limit, widest] : cases) {
    InstructionSets expected = 0;
    for (int bit = 0; bit < 63; ++bit) {
      const InstructionSets set = InstructionSets{1} << bit;
      if (set >= widest) expected |= all & set;
    }
    EXPECT_EQ(Available(limit), expected) << limit;
  }
}

TEST(InstructionSets, WhatNamesNoLimitLimitsNothing) {
  const InstructionSets all = Available(nullptr);
  for (const char* const value : {"", "ALL", "nonsense"}) {
    EXPECT_EQ(Available(value), all) << value;
  }
}

// What a job takes whose oldest CPU has SSE4 and nothing wider.
InstructionSets UpToSse4() { return Available("SSE4"); }

// Ends the process: 0 where kernels do as agreed.
void UseSse4AndExit() {
  UseInstructionSets(UpToSse4());
  UseInstructionSets(UpToSse4());  // as a command does whose ranks agree, after the process's start
  const int64_t operations = cpu::MultiplyInRegisters(1), of_a_lane = 2 * 12;
  InstructionSets dispatched = 0;
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) dispatched |= target;
  std::exit(dispatched == UpToSse4() && operations == 4 * of_a_lane ? 0 : 2);
}

TEST(InstructionSetsDeathTest, FromThenOnKernelsHaveNoOther) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  const InstructionSets before = Available(nullptr);
  EXPECT_EXIT(UseSse4AndExit(), ::testing::ExitedWithCode(0), "");
  EXPECT_EQ(Available(nullptr), before) << "the child changed this process";
}

TEST(InstructionSetsDeathTest, NoneOrOnesThatThisCpuLacksAreACallersMistake) {
  EXPECT_DEATH(UseInstructionSets(0), "used != 0");
  EXPECT_DEATH(UseInstructionSets(InstructionSets{1} << 61), "used != 0");
}

#endif

}  // namespace
}  // namespace hadal
