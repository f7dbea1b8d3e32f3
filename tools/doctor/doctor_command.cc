// The subcommand `doctor` (tools/doctor/doctor.h). It starts MPI as training does.
#include "tools/commands.h"

#include <iostream>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cuda_host/cuda_device.h"
#include "launch/device_choice.h"
#include "launch/error_report.h"
#include "launch/exit_code.h"
#include "launch/transport_choice.h"
#include "launch/world.h"
#include "runtime/comm/nccl_library.h"
#include "runtime/device_watch.h"
#include "runtime/files.h"
#include "runtime/status_macros.h"
#include "tools/device_flags.h"
#include "tools/doctor/doctor.h"
#include "tools/output/staged_output.h"
#include "tools/tool_exit_code.h"

namespace hadal {
namespace {

// Timeout of each wait for the GPU. A measurement takes seconds.
constexpr absl::Duration kGpuTimeout = absl::Minutes(2);

struct DoctorArguments {
  ProbeOptions probe;
  DeviceRequest device;
  int threads = 0;
  double message_mib = 4, file_mib = 16;
  bool json = false;
};

// This rank's GPU and NCCL. They outlive the end of a job that an error of NCCL's aborts.
struct DoctorDevice {
  std::unique_ptr<Device> device;
  std::unique_ptr<NcclLibrary> nccl;
  std::unique_ptr<LinkProbe> links;
};

DeviceWatch::Options GpuWatch(const World& world) {
  return {.timeout = kGpuTimeout, .hung = [rank = world.rank()](const std::string& what) {
            EndHung(absl::StrCat("doctor [rank ", rank, "]"), what, {});
          }};
}

// The facts of the GPU that this rank would compute on; opens it as `found`.
GpuFacts LookForGpu(const std::string& kind, const World& world, DoctorDevice& found) {
  if (kind == "cpu") return {};
  const DeviceWatch::Options options = GpuWatch(world);
  const cuda::CudaDeviceOptions which{.local_rank = world.local_rank(), .watch = options};
  DeviceWatch watch(options);
  const DeviceWatch::Wait wait(watch, "looking for a GPU");
  const absl::StatusOr<cuda::CudaFacts> seen = cuda::LookAtCudaDevice(which);
  absl::StatusOr<std::unique_ptr<Device>> opened = cuda::OpenCudaDevice(which);
  GpuFacts facts = GatherGpuFacts(seen, opened.status(), /*required=*/kind == "cuda");
  if (!opened.ok()) return facts;
  found.device = *std::move(opened);
  absl::StatusOr<std::unique_ptr<NcclLibrary>> nccl = OpenNccl();
  if (nccl.ok()) facts.nccl = (*nccl)->Version();
  if (!nccl.ok()) facts.why_no_nccl = std::string(nccl.status().message());
  if (nccl.ok()) found.nccl = *std::move(nccl);
  NcclConditions conditions = ExamineNcclConditions();
  facts.nccl_variables = std::move(conditions.variables);
  facts.nccl_refusal = std::move(conditions.refusal);
  return facts;
}

absl::Status ConnectDevices(World& world, const ProbeOptions& options, DoctorDevice& found, DoctorReport& report) {
  DeviceWatch watch(GpuWatch(world));
  const DeviceWatch::Wait wait(watch, "connecting the ranks' GPUs and measuring the links");
  found.links = std::make_unique<LinkProbe>(*found.nccl, *found.device, world.communicator());
  return ExamineLinks(world.communicator(), *found.links, options, report);
}

absl::StatusOr<int> DoctorInWorld(DoctorArguments arguments, World& world, DoctorDevice& found) {
  arguments.probe.message_bytes = static_cast<int64_t>(arguments.message_mib * (1 << 20));
  arguments.probe.file_bytes = static_cast<int64_t>(arguments.file_mib * (1 << 20));
  // A directory that cannot be made is found out, rank by rank, by writing into it.
  HADAL_RETURN_IF_ERROR(AsCommonError(CheckPlace(arguments.probe.directory)));
  const absl::Status made = MakeDirectories(arguments.probe.directory);
  if (!made.ok() && world.rank() == 0) PrintToolError("doctor", made);
  const GpuFacts gpu = LookForGpu(arguments.device.kind, world, found);
  arguments.probe.device = found.device.get();
  HADAL_ASSIGN_OR_RETURN(DoctorReport report, Examine(world.communicator(), world.stream(), arguments.probe, gpu));
  // Last, because its errors end the job; what was found before is printed then, too.
  absl::Status connected;
  if (WouldUseNccl(report.ranks)) connected = ConnectDevices(world, arguments.probe, found, report);
  if (!connected.ok()) {
    report.findings.insert(report.findings.begin(), {.severity = Severity::kBad,
                                                     .ranks = {world.rank()},
                                                     .text = "NCCL does not connect the ranks' GPUs: see the error"});
  }
  if (world.rank() == 0) std::cout << (arguments.json ? DoctorToJson(report) : DoctorToText(report)) << std::flush;
  HADAL_RETURN_IF_ERROR(connected);
  return report.healthy() ? kExitDone : kExitError;
}

int RunDoctor(const DoctorArguments& arguments) {
  const absl::StatusOr<std::unique_ptr<World>> world = World::Start(arguments.threads);
  if (!world.ok()) return ReportNoWorld("doctor", world.status());
  if (!(*world)->warning().empty()) std::cerr << "warning: " << (*world)->warning() << "\n";
  DoctorDevice found;
  const absl::StatusOr<int> code =
      WithdrawOnException((*world)->communicator(), [&] { return DoctorInWorld(arguments, **world, found); });
  if (code.ok()) return *code;
  const bool together = ReportError("doctor", code.status(), (*world)->communicator(), std::cerr);
  if (!together) (*world)->communicator().Abort(ExitCodeOf(code.status()));
  return ExitCodeOf(code.status());
}

}  // namespace

void AddDoctorCommand(Command app, int& exit_code) {
  Command command = app.AddCommand("doctor", "Examine the ranks, links and files of a job before it runs");
  auto arguments = std::make_shared<DoctorArguments>();
  constexpr double kLeastMib = 0.001, kMostMib = 1024;
  command.AddOption("--run-dir", arguments->probe.directory, "Directory of the run").ShowDefault();
  AddDeviceFlags(command, arguments->device);
  command.AddNumber("--threads", arguments->threads, "CPU threads per rank; 0: its share of the CPUs", 0, 1024);
  command.AddNumber("--message-mib", arguments->message_mib, "Size of the messages, MiB", kLeastMib, kMostMib);
  command.AddNumber("--file-mib", arguments->file_mib, "Size of each rank's file, MiB", kLeastMib, kMostMib);
  command.AddFlag("--json", arguments->json, "Print everything as JSON");
  command.Runs([arguments, &exit_code] { exit_code = RunDoctor(*arguments); });
}

}  // namespace hadal
