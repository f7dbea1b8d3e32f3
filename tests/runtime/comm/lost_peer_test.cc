// When a rank is lost in whatever way, mpirun ends the whole job with an error, long before the survivors' deadlines.
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>

#include "gmock/gmock.h"

namespace hadal {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct JobResult {
  int exit_code = -1;
  std::string output;
};

// HADAL_MPIRUN (with its flags) and HADAL_LOST_PEER_RANK, and HADAL_MPIRUN_KILLED, come from CMakeLists.txt. The
// survivor waits 60 s, so a job that only its deadline ends would be stopped by timeout(1) first, with exit code 124.
JobResult RunJob(const std::string& way) {
  const std::string command = "timeout 30 " HADAL_MPIRUN " -n 2 " HADAL_LOST_PEER_RANK " " + way + " 2>&1";
  JobResult result;
  FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return result;
  std::array<char, 4096> block;
  while (const size_t count = fread(block.data(), 1, block.size(), pipe)) result.output.append(block.data(), count);
  const int status = pclose(pipe);
  if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  return result;
}

struct Loss {
  const char* way;
  int exit_code;
};

class LostPeer : public ::testing::TestWithParam<Loss> {};

TEST_P(LostPeer, EndsTheJob) {
  const JobResult result = RunJob(GetParam().way);
  EXPECT_EQ(result.exit_code, GetParam().exit_code) << result.output;
  EXPECT_THAT(result.output, HasSubstr("rank 1 leaves"));
  EXPECT_THAT(result.output, Not(HasSubstr("rank 0 survived")));
}

INSTANTIATE_TEST_SUITE_P(Ways, LostPeer,
                         ::testing::Values(Loss{"exit", 3}, Loss{"kill", HADAL_MPIRUN_KILLED}, Loss{"abort", 5},
                                           Loss{"return", 6}),
                         [](const auto& info) { return std::string(info.param.way); });

}  // namespace
}  // namespace hadal
