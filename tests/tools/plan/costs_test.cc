#include "tools/plan/cost_files.h"

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "layers/method_presets.h"
#include "runtime/files.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_plan.h"
#include "tools/command_line.h"
#include "tools/plan/step_costs.h"

namespace hadal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class CostFilesTest : public ::testing::Test {
 protected:
  CostFilesTest() {
    SetContents(
        both_.profile,
        "gflops: 100 message_gb_per_second: 1 message_microseconds: 5 held_nanoseconds: 2 updated_nanoseconds: 3 "
        "sum_nanoseconds: 4 capacities { source_tokens: 8 target_tokens: 8 } model { d_model: 512 "
        "d_ff: 2048 heads: 8 source_vocabulary: 100 target_vocabulary: 100 }");
    SetContents(both_.machine,
                "memory_gib: 8 memory_gb_per_second: 20 fp32 { peak_tflops: 0.2 } inter_node { gb_per_second: 3 }");
  }
  static std::unique_ptr<StepCosts> CostsOf(const CostFiles& files) {
    return LoadCosts(files).value().For({.source_vocabulary = 100, .target_vocabulary = 100}).value();
  }
  // What a run with these files keeps, in a directory of its own.
  CostFiles Kept(const CostFiles& files) {
    run_ = directory_ / absl::StrCat("run", ++runs_);
    EXPECT_TRUE(MakeDirectories(run_).ok());
    EXPECT_EQ(StoreCosts(files, run_), absl::OkStatus());
    return StoredCosts(run_);
  }

  const TemporaryDirectory directory_;
  const CostFiles both_{.profile = directory_ / "a_profile", .machine = directory_ / "a_machine"};
  std::string run_;
  int runs_ = 0;
};

TEST_F(CostFilesTest, AProfileSaysWhatIsComputedAndAMachineWhatLiesBetweenItsNodes) {
  const auto profile = CostsOf({.profile = both_.profile}), machine = CostsOf({.machine = both_.machine});
  EXPECT_DOUBLE_EQ(profile->peak_flops(), 1e11);
  EXPECT_DOUBLE_EQ(profile->Link(/*leaves_node=*/true).bytes_per_second, 1e9);
  EXPECT_DOUBLE_EQ(profile->Link(/*leaves_node=*/false).latency_seconds, 5e-6);
  EXPECT_DOUBLE_EQ(profile->UpdateSeconds(/*held=*/1e9, /*updated=*/2e9), 2 + 2 * 3);
  EXPECT_DOUBLE_EQ(profile->SumSeconds(), 4e-9);
  EXPECT_DOUBLE_EQ(machine->peak_flops(), 2e11);
  EXPECT_DOUBLE_EQ(machine->Link(/*leaves_node=*/true).bytes_per_second, 3e9);
  const auto both = CostsOf(both_);
  EXPECT_DOUBLE_EQ(both->peak_flops(), 1e11);
  EXPECT_DOUBLE_EQ(both->Link(/*leaves_node=*/true).bytes_per_second, 3e9);
}

TEST_F(CostFilesTest, AFileThatIsNotThereIsNamed) {
  const std::string nowhere = directory_ / "nowhere";
  for (const CostFiles& files : {CostFiles{.profile = nowhere}, CostFiles{.machine = nowhere}}) {
    const absl::Status status = LoadCosts(files).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find(nowhere), absl::string_view::npos) << status;
  }
  EXPECT_FALSE(StoreCosts({.machine = nowhere}, directory_.path()).ok());
  EXPECT_FALSE(StoreCosts({.profile = nowhere, .machine = both_.machine}, directory_.path()).ok());
}

TEST_F(CostFilesTest, TheFlagsNameTheFiles) {
  CommandLine line("train", "");
  CostFiles files;
  AddCostFlags(line.program(), "for a test", files);
  ASSERT_EQ(line.Run({"--profile", "p", "--machine", "m"}), CommandLine::Outcome::kRan);
  EXPECT_EQ(files.profile, "p");
  EXPECT_EQ(files.machine, "m");
  EXPECT_NE(line.Help().find("configs/machines): for a test"), std::string::npos);
}

TEST_F(CostFilesTest, ARunKeepsTheFilesThatItWasGiven) {
  const CostFiles kept = Kept(both_);
  EXPECT_EQ(kept.profile, run_ + "/profile.textproto");
  EXPECT_EQ(kept.machine, run_ + "/machine.textproto");
  EXPECT_EQ(Contents(kept.profile), Contents(both_.profile));
  EXPECT_EQ(Contents(kept.machine), Contents(both_.machine));
}

TEST_F(CostFilesTest, ARunKeepsNothingElse) {
  EXPECT_TRUE(Kept({}).empty());
  const CostFiles profile = Kept({.profile = both_.profile});
  EXPECT_EQ(Contents(profile.profile), Contents(both_.profile));
  EXPECT_EQ(profile.machine, "");
  const CostFiles machine = Kept({.machine = both_.machine});
  EXPECT_EQ(machine.profile, "");
  EXPECT_EQ(Contents(machine.machine), Contents(both_.machine));
}

TEST(Machine, ReadyDescriptionsHaveWhatAPlanNeeds) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(absl::StrCat(HADAL_CONFIGS, "/machines"))) {
    const Machine machine = LoadMachine(entry.path().string()).value();
    EXPECT_GT(machine.memory_bytes, 0);
    EXPECT_FALSE(machine.name.empty());
    const bool cpu = machine.precision == Precision::kFp32;
    EXPECT_EQ(MakeRooflineCosts(machine).ok(), !cpu) << "a CPU's rates come from a profile";
    ++files;
  }
  EXPECT_GE(files, 4);
}

TEST(Machine, DeratesLinksAndMemory) {
  const TemporaryDirectory directory;
  SetContents(directory / "derated.textproto",
              "memory_gib: 3 reserved_gib: 1 memory_gb_per_second: 100 memory_efficiency: 0.5 gap_microseconds: 3\n"
              "intra_node { gb_per_second: 10 efficiency: 0.5 latency_microseconds: 2 }\n");
  const Machine machine = LoadMachine(directory / "derated.textproto").value();
  EXPECT_EQ(machine.memory_bytes, int64_t{2} << 30);
  EXPECT_DOUBLE_EQ(machine.memory_bytes_per_second, 50e9);
  EXPECT_DOUBLE_EQ(machine.intra_node.HeldSeconds(5e9), 1);
  EXPECT_DOUBLE_EQ(machine.intra_node.latency_seconds, 2e-6);
  EXPECT_DOUBLE_EQ(machine.gap_seconds, 3e-6);
  EXPECT_DOUBLE_EQ(machine.call_seconds, 60e-6) << "a plan without the host's costs is too good";
  EXPECT_DOUBLE_EQ(machine.grouped_call_seconds, 5e-6);
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

Machine Device() {
  return {.name = "test",
          .precision = Precision::kBf16,
          .peak_flops = 100e12,
          .matmul_flops = 80e12,
          .attention_flops = 20e12,
          .matmul_units = 64,
          .matmul_tile = 128,
          .memory_bytes_per_second = 1e12,
          .kernel_seconds = 1e-6};
}

ModelPlan SmallModel(ResidualMethod method = ResidualMethod::kDeepNorm) {
  ModelOptions options = TinyModel(
      {.encoder_layers = 2, .decoder_layers = 3, .d_model = 512, .d_ff = 2048, .heads = 8, .vocabulary = 1000});
  ApplyResidualMethod(method, options);
  return ModelPlan::Make(options);
}

// 128 · 64 tiles of a side: whole waves, so that large products run at the rate.
TEST(ProductSeconds, LargeProductsRunAtTheRate) {
  const double n = 128 * 64;
  EXPECT_DOUBLE_EQ(ProductSeconds(Device(), n, n, n, 2), 2 * n * n * n / 80e12);
}

TEST(ProductSeconds, FewTilesLeaveUnitsIdleUnlessTheDepthIsSplit) {
  const Machine device = Device();
  // 65 tiles take two waves.
  EXPECT_DOUBLE_EQ(ProductSeconds(device, 65 * 128, 128, 4096, 0), 2 * ProductSeconds(device, 64 * 128, 128, 4096, 0));
  // A weight's gradient: 16 tiles of output, whose long sum splits over the 64 units; a short one cannot be split.
  EXPECT_DOUBLE_EQ(ProductSeconds(device, 512, 512, 8192, 0), 2.0 * 512 * 512 * 8192 / 80e12);
  EXPECT_DOUBLE_EQ(ProductSeconds(device, 512, 512, 512, 0), 4 * 2.0 * 512 * 512 * 512 / 80e12);
}

TEST(ProductSeconds, NoProductIsFasterThanMemoryOrAKernel) {
  const Machine device = Device();
  EXPECT_DOUBLE_EQ(ProductSeconds(device, 1, 1, 1, 2), 1e-6);
  const double rows = 1 << 20;
  EXPECT_DOUBLE_EQ(ProductSeconds(device, rows, 128, 16, 2), 2 * (rows * 16 + 16 * 128 + rows * 128) / 1e12);
}

TEST(RooflineCosts, ForwardIsRepeatedOnlyWithCheckpointingAndOnlyInLayers) {
  const auto costs = MakeRooflineCosts(Device()).value();
  const ModelPlan plan = SmallModel();
  const ActivationCapacity capacity{.source_rows = 2048, .target_rows = 1024};
  const auto plain = costs->Sublayers(plan, capacity, false), repeated = costs->Sublayers(plan, capacity, true);
  ASSERT_TRUE(plain.ok() && repeated.ok());
  for (size_t s = 0; s < plan.sublayers.size(); ++s) {
    EXPECT_GT((*plain)[s].forward, 0);
    EXPECT_EQ((*plain)[s].recompute, 0);
    EXPECT_EQ((*repeated)[s].forward, (*plain)[s].forward);
    EXPECT_EQ((*repeated)[s].recompute, plan.sublayers[s].layer >= 0 ? (*plain)[s].forward : 0);
    EXPECT_TRUE(plan.sublayers[s].layer < 0 || (*plain)[s].backward > (*plain)[s].forward);
  }
}

// Rows of d in fp32: 18 forward and 39 backward for four streams, of which the product of the maps has 4 and 12; norm
// and result 5 and 6.
TEST(RooflineCosts, SeveralStreamsTakeTheTripsThatTheirKernelsState) {
  const auto costs = MakeRooflineCosts(Device()).value();
  const ActivationCapacity capacity{.source_rows = 2048, .target_rows = 2048};
  const auto one = costs->Sublayers(SmallModel(), capacity, false),
             four = costs->Sublayers(SmallModel(ResidualMethod::kMhc), capacity, false);
  ASSERT_TRUE(one.ok() && four.ok());
  const double row = 2048 * 512 / 1e12, maps = 4 * 6, all = 4 * 512;
  const auto product = [](double m, double n, double k) { return ProductSeconds(Device(), m, n, k, 4); };
  for (const size_t s : {size_t{1}, one->size() - 2}) {
    EXPECT_NEAR((*four)[s].forward - (*one)[s].forward, (14 + 5) * 4 * row + product(2048, maps, all) - 3 * 2 * row,
                1e-12);
    EXPECT_NEAR((*four)[s].backward - (*one)[s].backward,
                (27 + 6) * 4 * row + product(2048, all, maps) + product(maps, all, 2048) - 4 * 2 * row, 1e-12);
  }
}

// Beside Pre-LN's: four sublayers share the passes over their block's sources; the second one also reads an open
// sum.
TEST(RooflineCosts, ReadersOfBlocksTakeTheTripsThatTheirKernelsState) {
  const auto costs = MakeRooflineCosts(Device()).value();
  const ActivationCapacity capacity{.source_rows = 2048, .target_rows = 2048};
  const ModelPlan plain = SmallModel(ResidualMethod::kPreLn);
  ModelOptions options = plain.options;
  options.encoder.attention_residual_block_sublayers = 4;
  const ModelPlan blocks = ModelPlan::Make(options);
  const auto one = costs->Sublayers(plain, capacity, false), of_blocks = costs->Sublayers(blocks, capacity, true);
  ASSERT_TRUE(one.ok() && of_blocks.ok());
  const double row = 4 * 2048 * 512 / 1e12;
  for (const auto& [s, forward, backward] : {std::tuple(1, 1.25 + 2, 1.75 + 3), {2, 1.25 + 3 + 2, 1.75 + 6 + 3}}) {
    EXPECT_NEAR((*of_blocks)[s].forward - (*one)[s].forward, forward * row, 1e-12) << s;
    EXPECT_NEAR((*of_blocks)[s].backward - (*one)[s].backward, backward * row, 1e-12) << s;
    EXPECT_EQ((*of_blocks)[s].recompute, (*of_blocks)[s].forward);
  }
}

TEST(RooflineCosts, WithoutRatesAsksForAProfile) {
  for (double Machine::*rate : {&Machine::peak_flops, &Machine::memory_bytes_per_second}) {
    Machine cpu = Device();
    cpu.*rate = 0;
    const auto costs = MakeRooflineCosts(cpu);
    EXPECT_EQ(costs.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(costs.status().message().find("bench profile"), std::string::npos);
  }
}

// The last decoder layer's sublayers: self-attention, cross-attention, feed-forward; the head behind them.
TEST(RooflineCosts, EachPartOfASublayerIsCounted) {
  const ModelPlan plan = SmallModel();
  const size_t cross = plan.sublayers.size() - 3, feed_forward = cross + 1;
  const auto of = [](const Machine& machine, const ModelPlan& model, int64_t source_rows) {
    return MakeRooflineCosts(machine).value()->Sublayers(model, {source_rows, 1024}, false).value();
  };
  const double keys_and_values =  // of each row of the encoder's output
      ProductSeconds(Device(), 4096, 1024, 512, 2) - ProductSeconds(Device(), 1024, 1024, 512, 2);
  EXPECT_GE(of(Device(), plan, 4096)[cross].forward - of(Device(), plan, 1024)[cross].forward, 0.99 * keys_and_values);
  ModelOptions options = plan.options;
  options.block.gated = true;
  EXPECT_GE(of(Device(), ModelPlan::Make(options), 1024)[feed_forward].forward,
            ProductSeconds(Device(), 1024, 2 * 2048, 512, 2) + ProductSeconds(Device(), 1024, 512, 2048, 2));
  Machine slow = Device();  // where attention is all
  slow.attention_flops = 1e6;
  const SublayerSeconds attention = of(slow, plan, 1024)[cross];
  EXPECT_NEAR(attention.backward / attention.forward, 5.0 / 2, 1e-3) << "products of a flash attention";
}

}  // namespace
}  // namespace hadal
