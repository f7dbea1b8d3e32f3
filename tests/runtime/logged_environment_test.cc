#include "runtime/logged_environment.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hadal {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(LoggedEnvironment, OnlyListedVariablesByTheirWholeName) {
  const char* const environment[] = {"OMPI_MCA_btl=self,\nvader", "NCCL_DEBUG=\033[2JINFO", "SLURM_JOB_ID=17", nullptr};
  EXPECT_THAT(LoggedEnvironment(environment),
              ElementsAre("NCCL_DEBUG=\\x1b[2JINFO", "OMPI_MCA_btl=self, vader", "SLURM_JOB_ID=17"));
  for (const char* prefix : {"CUDA_", "DNNL_", "HADAL_", "NCCL_", "NCCL_DEBUG", "OMP_", "OMPI_MCA_", "OMPI_MCA_btl_",
                             "ONEDNN_", "SLURM_", "UCX_", "AWS_SECRET_"}) {
    const std::string planted = std::string(prefix) + "TOKEN=no";
    const char* const environment[] = {planted.c_str(), nullptr};
    EXPECT_THAT(LoggedEnvironment(environment), IsEmpty()) << planted;
  }
}

}  // namespace
}  // namespace hadal
