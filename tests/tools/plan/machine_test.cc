#include "tools/plan/step_costs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "tests/support/temporary_directory.h"
#include "tools/plan/roofline_costs.h"

namespace hadal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Machine, ReadyDescriptionsHaveWhatAPlanNeeds) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(absl::StrCat(HADAL_CONFIGS, "/machines"))) {
    const absl::StatusOr<Machine> machine = LoadMachine(entry.path().string());
    ASSERT_TRUE(machine.ok()) << machine.status();
    EXPECT_GT(machine->memory_bytes, 0);
    EXPECT_FALSE(machine->name.empty());
    const bool cpu = machine->precision == Precision::kFp32;
    EXPECT_EQ(MakeRooflineCosts(*machine).ok(), !cpu) << "a CPU's rates come from a profile";
    ++files;
  }
  EXPECT_GE(files, 4);
}

TEST(Machine, DeratesLinksAndMemory) {
  const TemporaryDirectory directory;
  SetContents(directory / "derated.textproto",
              "memory_gib: 3 reserved_gib: 1 memory_gb_per_second: 100 memory_efficiency: 0.5 gap_microseconds: 3\n"
              "intra_node { gb_per_second: 10 efficiency: 0.5 latency_microseconds: 2 }\n");
  const absl::StatusOr<Machine> machine = LoadMachine(directory / "derated.textproto");
  ASSERT_TRUE(machine.ok()) << machine.status();
  EXPECT_EQ(machine->memory_bytes, int64_t{2} << 30);
  EXPECT_DOUBLE_EQ(machine->memory_bytes_per_second, 50e9);
  EXPECT_DOUBLE_EQ(machine->intra_node.HeldSeconds(5e9), 1);
  EXPECT_DOUBLE_EQ(machine->intra_node.latency_seconds, 2e-6);
  EXPECT_DOUBLE_EQ(machine->gap_seconds, 3e-6);
  EXPECT_DOUBLE_EQ(machine->call_seconds, 60e-6) << "a plan without the host's costs is too good";
  EXPECT_DOUBLE_EQ(machine->grouped_call_seconds, 5e-6);
}

TEST(Machine, MistakesAreRefusedWithTheirPlace) {
  const TemporaryDirectory directory;
  const auto error = [&](const std::string& text) {
    SetContents(directory / "bad.textproto", text);
    return std::string(LoadMachine(directory / "bad.textproto").status().message());
  };
  EXPECT_THAT(error("devices: 8\n"), AllOf(HasSubstr("bad.textproto:1:1"), HasSubstr("devices_per_node")));
  EXPECT_THAT(error("memory_gib: 8\nintra_node { efficiency: 2 }\n"),
              AllOf(HasSubstr("bad.textproto:2:"), HasSubstr("intra_node.efficiency = 2"), HasSubstr("(0, 1]")));
  EXPECT_THAT(error("memory_gib: 8 precision: \"fp16\"\n"), HasSubstr("\"fp32\""));
  EXPECT_THAT(error("devices_per_node: 8\n"), HasSubstr("memory_gib is not set"));
  EXPECT_THAT(error("memory_gib: 2 reserved_gib: 3\n"), HasSubstr("leaves nothing"));
}

}  // namespace
}  // namespace hadal
