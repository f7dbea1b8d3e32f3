// What a person may limit, and what a job may agree on. What changes the process is done in a child of it.
#include "kernels/instruction_set.h"

#include <dnnl.h>

#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <optional>

#include "gtest/gtest.h"
#include "hwy/highway.h"
#include "hwy/targets.h"
#include "kernels/linear.h"

namespace hadal {
namespace {

constexpr char kNewName[] = "ONEDNN_MAX_CPU_ISA", kOldName[] = "DNNL_MAX_CPU_ISA";

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

InstructionSets Available(const char* new_name, const char* old_name = nullptr) {
  const Variable new_variable(kNewName, new_name), old_variable(kOldName, old_name);
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

// Everything wider is gone and all else stays, whatever Highway's version calls the wider ones.
TEST(InstructionSets, ALimitTakesAwayWhatIsWider) {
  const InstructionSets all = Available(nullptr);
  const struct {
    const char* limit;
    InstructionSets widest;
  } cases[] = {{"AVX512_CORE", HWY_AVX3}, {"AVX2", HWY_AVX2},  {"avx2", HWY_AVX2}, {"AVX2_VNNI", HWY_AVX2},
               {"AVX", HWY_SSE4},         {"SSE41", HWY_SSE4}, {"sse41", HWY_SSE4}};
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
  for (const char* const value : {"", "ALL", "DEFAULT", "AVX512_CORE_AMX", "nonsense"}) {
    EXPECT_EQ(Available(value), all) << value;
  }
}

TEST(InstructionSets, TheOldVariableCountsWhereTheNewOneIsNotSet) {
  EXPECT_EQ(Available(nullptr, "SSE41"), Available("SSE41"));
  EXPECT_EQ(Available("AVX2", "SSE41"), Available("AVX2"));
}

// What a job takes whose oldest CPU has SSE4 and nothing wider.
InstructionSets UpToSse4() { return Available("SSE41"); }

// Ends the process: 0 where kernels do as agreed and so does oneDNN, which its own variable still allows more.
void UseSse4AndExit() {
  if (!UseInstructionSets(UpToSse4()).ok()) std::exit(1);
  InstructionSets dispatched = 0;
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) dispatched |= target;
  std::exit(dispatched == UpToSse4() && dnnl_get_effective_cpu_isa() == dnnl_cpu_isa_sse41 ? 0 : 2);
}

TEST(InstructionSetsDeathTest, FromThenOnKernelsHaveNoOther) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";  // a process of its own, in which oneDNN has chosen nothing
  const InstructionSets before = Available(nullptr);
  EXPECT_EXIT(UseSse4AndExit(), ::testing::ExitedWithCode(0), "");
  EXPECT_EQ(Available(nullptr), before) << "the child changed this process";
}

// oneDNN chooses when its first product runs.
void MultiplyThenLimitAndExit() {
  const float x[] = {1, 2}, w[] = {3, 4};
  float y[] = {0};
  LinearForward(Stream::Cpu(1), {.x = ConstMatrix(x, 1, 2), .weight = ConstMatrix(w, 1, 2), .y = Matrix(y, 1, 1)});
  const absl::Status status = UseInstructionSets(UpToSse4());
  std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  std::exit(absl::IsFailedPrecondition(status) ? 0 : 1);
}

TEST(InstructionSetsDeathTest, BehindAProductThatOneDnnHasChosenForItIsTooLate) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(MultiplyThenLimitAndExit(), ::testing::ExitedWithCode(0), "give all ranks ONEDNN_MAX_CPU_ISA=SSE41");
}

TEST(InstructionSetsDeathTest, NoneOrOnesThatThisCpuLacksAreACallersMistake) {
  EXPECT_DEATH((void)UseInstructionSets(0), "sets != 0");
  EXPECT_DEATH((void)UseInstructionSets(InstructionSets{1} << 61), "compiled");
}

#endif

}  // namespace
}  // namespace hadal
