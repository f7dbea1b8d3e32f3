#include "launch/doctor_command.h"

#include <unistd.h>

#include <iostream>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/cuda_host/cuda_device.h"
#include "launch/job/device_choice.h"
#include "launch/job/device_hang.h"
#include "launch/job/error_report.h"
#include "launch/job/exit_code.h"
#include "launch/job/transport_choice.h"
#include "launch/job/withdrawal.h"
#include "launch/job/world.h"
#include "runtime/comm/nccl_library.h"
#include "runtime/device_watch.h"
#include "runtime/files.h"
#include "runtime/status_macros.h"
#include "tools/doctor/doctor.h"

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

// What there is to know of the GPU that this rank would compute on, which becomes `device`.
GpuFacts LookForGpu(const std::string& kind, const World& world, std::unique_ptr<Device>& device) {
  if (kind == "cpu") return {};
  const DeviceWatch::Options options{.timeout = kGpuTimeout, .hung = [rank = world.rank()](const std::string& what) {
                                       EndHung(absl::StrCat("doctor [rank ", rank, "]"), what, {});
                                     }};
  const cuda::CudaDeviceOptions which{.local_rank = world.local_rank(), .watch = options};
  DeviceWatch watch(options);
  const DeviceWatch::Wait wait(watch, "looking for a GPU");
  const absl::StatusOr<cuda::CudaFacts> seen = cuda::LookAtCudaDevice(which);
  absl::StatusOr<std::unique_ptr<Device>> opened = cuda::OpenCudaDevice(which);
  GpuFacts facts = GatherGpuFacts(seen, opened.status(), /*required=*/kind == "cuda");
  if (!opened.ok()) return facts;
  device = *std::move(opened);
  const absl::StatusOr<std::unique_ptr<NcclLibrary>> nccl = OpenNccl();
  if (nccl.ok()) facts.nccl = (*nccl)->Version();
  if (!nccl.ok()) facts.why_no_nccl = std::string(nccl.status().message());
  facts.nccl_variables = NcclVariables(environ);
  facts.nccl_refusal = NcclRefusal(environ);
  return facts;
}

absl::StatusOr<int> DoctorInWorld(DoctorArguments arguments, World& world) {
  arguments.probe.message_bytes = static_cast<int64_t>(arguments.message_mib * (1 << 20));
  arguments.probe.file_bytes = static_cast<int64_t>(arguments.file_mib * (1 << 20));
  // A directory that cannot be made is found out, rank by rank, by writing into it.
  const absl::Status made = MakeDirectories(arguments.probe.directory);
  if (!made.ok() && world.rank() == 0) std::cerr << "hadal doctor: " << made.message() << "\n";
  std::unique_ptr<Device> device;
  const GpuFacts gpu = LookForGpu(arguments.device.kind, world, device);
  arguments.probe.device = device.get();
  HADAL_ASSIGN_OR_RETURN(const DoctorReport report,
                         Examine(world.communicator(), world.stream(), arguments.probe, gpu));
  if (world.rank() == 0) std::cout << (arguments.json ? DoctorToJson(report) : DoctorToText(report)) << std::flush;
  return report.healthy() ? kExitDone : kExitError;
}

int RunDoctor(const DoctorArguments& arguments) {
  const absl::StatusOr<std::unique_ptr<World>> world = World::Start(arguments.threads);
  if (!world.ok()) return ReportNoWorld("doctor", world.status());
  const absl::StatusOr<int> code =
      WithdrawOnException((*world)->communicator(), [&] { return DoctorInWorld(arguments, **world); });
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
  command.AddOption("--threads", arguments->threads, "CPU threads per rank; 0: its share of the host")
      .InRange(0, 1024)
      .ShowDefault();
  command.AddOption("--message-mib", arguments->message_mib, "Size of the messages, MiB")
      .InRange(kLeastMib, kMostMib)
      .ShowDefault();
  command.AddOption("--file-mib", arguments->file_mib, "Size of each rank's file, MiB")
      .InRange(kLeastMib, kMostMib)
      .ShowDefault();
  command.AddFlag("--json", arguments->json, "Print everything as JSON");
  command.Runs([arguments, &exit_code] { exit_code = RunDoctor(*arguments); });
}

}  // namespace hadal
