#include "tools/build_info.h"

#include "gmock/gmock.h"

namespace hadal {
namespace {

using ::testing::ContainsRegex;

TEST(BuildInfo, NamesWhatIsInTheBinary) {
  const std::string info = BuildInfo("22f7bf7536a6");
  EXPECT_THAT(info, ContainsRegex("hadal +[0-9]+\\.[0-9]+\\.[0-9]+\n"));
  EXPECT_THAT(info, ContainsRegex("commit +22f7bf7536a6\n"));
  EXPECT_THAT(info, ContainsRegex("MPI +(Open MPI|MPICH).*[0-9]"));
  EXPECT_THAT(info, ContainsRegex("Highway +[0-9]+\\.[0-9]+"));
  EXPECT_THAT(info, ContainsRegex("Protobuf +3\\.[0-9]+"));
  EXPECT_THAT(info, ContainsRegex("Abseil +20[0-9]+\n"));
  EXPECT_THAT(info, ContainsRegex("SentencePiece +[0-9]+\\.[0-9]+"));
  EXPECT_THAT(info, ContainsRegex("CUDA +(not built|kernels by nvcc [0-9]+)"));
  EXPECT_THAT(info, ContainsRegex("GPU +(none: .|.+, sm_[0-9]+)"));
  EXPECT_THAT(info, ContainsRegex("this CPU +[A-Z]+"));
}

}  // namespace
}  // namespace hadal
