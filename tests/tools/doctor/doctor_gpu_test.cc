// What the doctor says of GPUs: findings by facts that are made up, measurements on an emulated device.
#include <gmock/gmock.h>

#include <mutex>

#include "runtime/comm/in_process_communicator.h"
#include "runtime/status_macros.h"
#include "tests/support/emulated_device.h"
#include "tests/support/emulated_nccl.h"
#include "tests/support/healthy_cluster.h"
#include "tests/support/temporary_directory.h"
#include "tools/doctor/doctor.h"
#include "tools/doctor/doctor_gpu.h"

namespace hadal {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST(DoctorGpuFindings, HealthyGpusHaveNone) { EXPECT_THAT(GpuCluster().Findings(), IsEmpty()); }

TEST(DoctorGpuFindings, ARankWithoutAGpuBesideOthersIsBad) {
  GpuCluster cluster;
  cluster.LoseGpu(2, "no GPU is visible", /*absent=*/true);
  const Finding finding = cluster.Only();
  EXPECT_EQ(finding.severity, Severity::kBad);
  EXPECT_THAT(finding.ranks, ElementsAre(2));
  EXPECT_THAT(finding.text, AllOf(HasSubstr("no GPU, although other ranks have one"), HasSubstr("no GPU is visible")));
}

// Said once, and no reason to refuse a run on CPUs.
TEST(DoctorGpuFindings, RanksWithoutAnyGpuAreANote) {
  GpuCluster cluster;
  for (int rank = 0; rank < 4; ++rank) cluster.LoseGpu(rank, "no NVIDIA driver", /*absent=*/true);
  EXPECT_EQ(cluster.Only().severity, Severity::kNote);
  EXPECT_EQ(cluster.Only().text, "no GPU: no NVIDIA driver");
  EXPECT_THAT(cluster.Only().ranks, ElementsAre(0, 1, 2, 3));

  for (DoctorFacts& facts : cluster.ranks) facts.gpu.absent = false;
  EXPECT_EQ(cluster.Only().severity, Severity::kWarning);
  EXPECT_THAT(cluster.Only().text, HasSubstr("cannot be used"));

  for (DoctorFacts& facts : cluster.ranks) facts.gpu.required = true;
  EXPECT_EQ(cluster.Only().severity, Severity::kBad);
  EXPECT_THAT(cluster.Only().text, HasSubstr("--device cuda"));

  for (DoctorFacts& facts : cluster.ranks) facts.gpu = {};
  EXPECT_THAT(cluster.Findings(), IsEmpty()) << "--device cpu asks for none";
}

TEST(DoctorGpuFindings, TwoRanksOnOneGpu) {
  GpuCluster cluster;
  cluster.ranks[3].gpu.device.bus = cluster.ranks[2].gpu.device.bus;
  EXPECT_EQ(cluster.Only().severity, Severity::kBad);
  EXPECT_THAT(cluster.Only().ranks, ElementsAre(2, 3));
  EXPECT_THAT(cluster.Only().text, AllOf(HasSubstr("share one GPU (n2 0000:07:00.0)"), HasSubstr("through the host")));

  // All alike: a machine with fewer GPUs than ranks.
  cluster.ranks[1].gpu.device.bus = cluster.ranks[0].gpu.device.bus;
  const auto both = cluster.Findings();
  ASSERT_EQ(both.size(), 2u);
  for (const Finding& finding : both) EXPECT_EQ(finding.severity, Severity::kWarning);

  // Where no place is known the device's own name says it.
  cluster = GpuCluster();
  for (DoctorFacts& facts : cluster.ranks) facts.gpu.device.bus.clear();
  EXPECT_THAT(cluster.Findings(), IsEmpty());
  cluster.ranks[1].gpu.device.identity = "GPU-3";
  EXPECT_THAT(cluster.Only().ranks, ElementsAre(1, 3));
}

TEST(DoctorGpuFindings, UnlikeGpusAndLibraries) {
  GpuCluster cluster;
  cluster.ranks[1].gpu.device.memory_bytes /= 2;
  EXPECT_THAT(cluster.Only().ranks, ElementsAre(1));
  EXPECT_THAT(cluster.Only().text, HasSubstr("its GPU is NVIDIA A100-SXM4-80GB, sm_80, 40 GiB; most ranks have"));

  cluster = GpuCluster();
  cluster.ranks[3].gpu.device.cublas = 120405;
  EXPECT_THAT(cluster.Only().text, HasSubstr("its cuBLASLt is 12.4.5; most ranks have 13.0.2"));

  cluster = GpuCluster();
  cluster.ranks[3].gpu.device.driver = 13010;
  EXPECT_THAT(cluster.Only().text, HasSubstr("its driver is 13.1; most ranks have 13.0"));

  cluster = GpuCluster();
  for (DoctorFacts& facts : cluster.ranks) facts.gpu.device.driver = 12080;
  for (DoctorFacts& facts : cluster.ranks) facts.gpu.device.runtime = 12090;
  EXPECT_EQ(cluster.Only().severity, Severity::kWarning);
  EXPECT_THAT(cluster.Only().text, HasSubstr("the driver supports CUDA 12.8, older than this program's 12.9"));
  EXPECT_THAT(cluster.Only().ranks, ElementsAre(0, 1, 2, 3));
}

TEST(DoctorGpuFindings, NcclThatIsMissingUnlikeOrToldWhatToDo) {
  GpuCluster cluster;
  cluster.ranks[2].gpu.nccl = 0;
  cluster.ranks[2].gpu.why_no_nccl = "NCCL is not found";
  EXPECT_THAT(cluster.Only().ranks, ElementsAre(2));
  EXPECT_THAT(cluster.Only().text, AllOf(HasSubstr("each rank has its own GPU"), HasSubstr("is not found")));

  cluster.ranks[2].gpu.nccl = 22703;
  EXPECT_THAT(cluster.Only().text, HasSubstr("its NCCL is 2.27.3; most ranks have 2.28.9"));

  // Ranks that share GPUs do without.
  cluster = GpuCluster();
  for (DoctorFacts& facts : cluster.ranks) facts.gpu.nccl = 0;
  for (DoctorFacts& facts : cluster.ranks) facts.gpu.device.bus = "0000:07:00.0";
  for (const Finding& finding : cluster.Findings()) EXPECT_THAT(finding.text, Not(HasSubstr("NCCL")));

  cluster = GpuCluster();
  cluster.ranks[1].gpu.nccl_refusal = "X is 1, and NCCL needs 32";
  EXPECT_EQ(cluster.Only().severity, Severity::kBad);
  EXPECT_EQ(cluster.Only().text, "runs over NCCL are refused: X is 1, and NCCL needs 32.");

  cluster = GpuCluster();
  for (DoctorFacts& facts : cluster.ranks) facts.gpu.nccl_variables = "NCCL_DEBUG=INFO";
  EXPECT_EQ(cluster.Only().severity, Severity::kNote);
  EXPECT_EQ(cluster.Only().text, "NCCL variables are set: NCCL_DEBUG=INFO");
  cluster.ranks[1].gpu.nccl_variables.clear();
  const auto unlike = cluster.Findings();
  ASSERT_EQ(unlike.size(), 2u);
  EXPECT_THAT(unlike[0].ranks, ElementsAre(1));
  EXPECT_THAT(unlike[0].text, HasSubstr("its NCCL setting is none; most ranks have NCCL_DEBUG=INFO"));
}

// Beside its like: an A100 is not slow because others have H100s.
TEST(DoctorGpuFindings, TheSlowOneIsNamed) {
  GpuCluster cluster;
  cluster.measured[1].gpu_flops = 1e14;
  EXPECT_EQ(cluster.Only().severity, Severity::kBad);
  EXPECT_THAT(cluster.Only().ranks, ElementsAre(1));
  EXPECT_THAT(cluster.Only().text, HasSubstr("products in bf16: 100.00 TFLOP/s, the median is 250.00 TFLOP/s"));

  cluster = GpuCluster();
  cluster.measured[3].gpu_copy_bytes_per_second = 1.1e12;
  EXPECT_EQ(cluster.Only().severity, Severity::kWarning);
  EXPECT_THAT(cluster.Only().text, HasSubstr("copies within its GPU: 1100.00 GB/s"));

  cluster = GpuCluster();
  cluster.measured[3].gpu_flops = 0;
  cluster.measured[3].gpu_trouble = "out of memory";
  EXPECT_THAT(cluster.Only().text, HasSubstr("not measured: out of memory"));

  cluster = GpuCluster();
  for (const int rank : {2, 3}) cluster.ranks[rank].gpu.device.model = "NVIDIA H100";
  for (const int rank : {2, 3}) cluster.measured[rank].gpu_flops = 7e14;
  EXPECT_THAT(cluster.Only().text, HasSubstr("its GPU is"));
}

TEST(DoctorGpu, FactsSurviveTheTrip) {
  GpuCluster cluster;
  cluster.ranks[0].gpu.nccl_variables = "NCCL_DEBUG=\"WARN\"";
  cluster.LoseGpu(1, "no driver", /*absent=*/true);
  for (const int rank : {0, 1}) {
    const std::string text = DoctorFactsToJson(cluster.ranks[rank]);
    const auto back = DoctorFactsFromJson(text).value();
    EXPECT_EQ(DoctorFactsToJson(back), text);
    EXPECT_EQ(back.gpu.found(), rank == 0);
  }
  EXPECT_FALSE(DoctorFactsFromJson(R"({"rank": 0, "gpu": 7})")->gpu.asked);
}

TEST(DoctorGpu, VersionsAsPeopleWriteThem) {
  EXPECT_EQ(CudaVersionText(12080), "12.8");
  EXPECT_EQ(LibraryVersionText(130002), "13.0.2");
  EXPECT_EQ(LibraryVersionText(22809), "2.28.9");
  EXPECT_EQ(LibraryVersionText(0), "-");
}

TEST(DoctorGpu, GathersWhatIsKnownOfOneThatCannotBeUsed) {
  const GpuFacts none = GatherGpuFacts(absl::NotFoundError("no driver"), absl::NotFoundError("no driver"), false);
  EXPECT_FALSE(none.found());
  EXPECT_TRUE(none.absent);
  const GpuFacts old = GatherGpuFacts(cuda::CudaFacts{.model = "V100"}, absl::UnavailableError("too old"), true);
  EXPECT_FALSE(old.found() || old.absent);
  EXPECT_EQ(old.device.model, "V100");
  EXPECT_TRUE(GatherGpuFacts(cuda::CudaFacts{.model = "A100"}, absl::OkStatus(), false).found());
}

// One rank has a GPU, the other none: both go through.
TEST(DoctorGpu, MeasuresTheGpusThatThereAre) {
  const TemporaryDirectory directory;
  InProcessWorld world(2);
  std::mutex mutex;
  DoctorReport seen;
  const absl::Status status = world.Run([&](Communicator& communicator) -> absl::Status {
    ProbeOptions options{.directory = directory.path(), .message_bytes = 1 << 12, .rounds = 1, .file_bytes = 1 << 12};
    GpuFacts gpu{.asked = true, .why_none = "no GPU is visible"};
    std::unique_ptr<testing::EmulatedDevice> device;
    if (communicator.rank() == 1) {
      device = std::make_unique<testing::EmulatedDevice>();
      options.device = device.get();
      gpu = {.asked = true, .device = {.model = "emulated", .architecture = "sm_90", .bus = "0000:01:00.0"}};
    }
    HADAL_ASSIGN_OR_RETURN(DoctorReport report, Examine(communicator, Stream::Cpu(1), options, gpu));
    const std::lock_guard lock(mutex);
    if (communicator.rank() == 0) seen = std::move(report);
    return absl::OkStatus();
  });
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(seen.measured[0].gpu_flops, 0);
  EXPECT_GT(seen.measured[1].gpu_flops, 0);
  EXPECT_GT(seen.measured[1].gpu_copy_bytes_per_second, 0);
  EXPECT_FALSE(seen.healthy());
  const std::string text = DoctorToText(seen);
  EXPECT_THAT(text, AllOf(HasSubstr("   0  none: no GPU is visible"), HasSubstr("emulated"), HasSubstr("TFLOP/s")));
  EXPECT_THAT(text, HasSubstr("BAD      rank 0 (host"));
}

TEST(DoctorGpu, NcclIsMeasuredWhereTrainingWouldUseIt) {
  EXPECT_TRUE(WouldUseNccl(GpuCluster().ranks));
  GpuCluster shared, mixed, without, refused;
  shared.ranks[2].gpu.device.bus = shared.ranks[3].gpu.device.bus;
  mixed.ranks[1].gpu.nccl = 22703;
  without.LoseGpu(3, "no GPU is visible", /*absent=*/true);
  refused.ranks[2].gpu.nccl_refusal = "CUDA_DEVICE_MAX_CONNECTIONS is 1";
  for (const GpuCluster* cluster : {&shared, &mixed, &without, &refused}) EXPECT_FALSE(WouldUseNccl(cluster->ranks));
  EXPECT_FALSE(WouldUseNccl({GpuCluster().ranks[0]}));
}

TEST(DoctorGpu, ConnectsAndMeasuresEveryTwoRanks) {
  constexpr int kRanks = 3;
  const ProbeOptions options{.message_bytes = 1 << 12, .rounds = 2};
  testing::EmulatedNccl nccl(5);
  InProcessWorld world(kRanks);
  std::mutex mutex;
  DoctorReport seen;
  const absl::Status status = world.Run([&](Communicator& communicator) -> absl::Status {
    testing::EmulatedDevice device(3 + communicator.rank());
    const std::unique_ptr<NcclLibrary> library = nccl.LibraryFor(device);
    LinkProbe probe(*library, device, communicator);
    DoctorReport report;
    HADAL_RETURN_IF_ERROR(ExamineLinks(communicator, probe, options, report));
    const std::lock_guard lock(mutex);
    if (communicator.rank() == 1) seen = std::move(report);
    return absl::OkStatus();
  });
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(nccl.messages(), kRanks * (kRanks - 1) * (1 + 1 + options.rounds)) << "to connect, to meet, and timed ones";
  ASSERT_EQ(seen.links.size(), kRanks);
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_GT(seen.links[rank].connect_seconds, 0);
    for (int peer = 0; peer < kRanks; ++peer) EXPECT_EQ(seen.links[rank].bytes_per_second[peer] > 0, peer != rank);
  }
  EXPECT_THAT(DoctorToText(seen), HasSubstr("NCCL from each rank to the 2 others"));
  EXPECT_THAT(DoctorToJson(seen), HasSubstr("\"bytes_per_second\""));
}

TEST(DoctorGpu, TheSlowestLinkOfEachRankIsNamed) {
  const LinkMeasurements first = {
      .connect_seconds = 0.5, .device_bytes = 12 << 20, .bytes_per_second = {0, 3e9, 1e9, 2e9}};
  std::string text;
  AppendLinks({first, first, first, first}, text);
  EXPECT_THAT(text, HasSubstr("   0       0.50        2.0         2.00          1.00  2\n"));
}

TEST(DoctorGpu, AGpuWithoutMemoryIsTroubleAndNoEnd) {
  const int64_t own_bytes = testing::EmulatedDevice().used_bytes();
  testing::EmulatedDevice full(/*seed=*/1, own_bytes + (100 << 10));
  EXPECT_EQ(ProductSize(Stream::On(full, 1)).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(MeasureGpu(Stream::On(full, 1), 256).status().code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace hadal
