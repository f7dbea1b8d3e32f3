#include "tools/doctor/doctor_probe.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "kernels/linear.h"
#include "runtime/clock.h"
#include "runtime/comm/collectives.h"
#include "runtime/comm/message_tags.h"
#include "runtime/files.h"
#include "runtime/status_macros.h"
#include "tools/doctor/doctor_gpu.h"

namespace hadal {
namespace {

constexpr double kGemmSeconds = 0.2;

class Prober {
 public:
  Prober(Communicator& communicator, const Stream& stream, const ProbeOptions& options)
      : communicator_(communicator),
        collectives_(communicator, options.timeout),
        stream_(stream),
        options_(options),
        send_(static_cast<size_t>(options.message_bytes), 1),
        receive_(send_.size()) {}

  absl::StatusOr<RankMeasurements> Run() {
    HADAL_RETURN_IF_ERROR(Neighbours());
    HADAL_RETURN_IF_ERROR(Ring());
    HADAL_RETURN_IF_ERROR(collectives_.Barrier("doctor: speed"));
    Speed();
    HADAL_RETURN_IF_ERROR(Gpus());
    HADAL_RETURN_IF_ERROR(collectives_.Barrier("doctor: files"));
    HADAL_RETURN_IF_ERROR(Files());
    return measured_;
  }

 private:
  int next() const { return (communicator_.rank() + 1) % communicator_.size(); }
  int previous() const { return (communicator_.rank() + communicator_.size() - 1) % communicator_.size(); }

  absl::Status Wait(absl::StatusOr<CommRequest> posted, std::string_view what) {
    HADAL_RETURN_IF_ERROR(posted.status());
    return communicator_.Wait(*posted, absl::Now() + options_.timeout, what);
  }

  // Ranks take turns, so that only one link is in use.
  absl::Status Neighbours() {
    for (int sender = 0; sender < communicator_.size() && communicator_.size() > 1; ++sender) {
      const int receiver = (sender + 1) % communicator_.size();
      if (communicator_.rank() == sender) HADAL_RETURN_IF_ERROR(SendToNext());
      if (communicator_.rank() == receiver) HADAL_RETURN_IF_ERROR(AnswerPrevious());
      HADAL_RETURN_IF_ERROR(collectives_.Barrier("doctor: neighbours"));
    }
    return absl::OkStatus();
  }

  absl::Status SendToNext() {
    double fastest = std::numeric_limits<double>::infinity(), latency = fastest;
    for (int round = 0; round < options_.rounds; ++round) {
      for (const size_t bytes : {send_.size(), size_t{8}}) {
        const Stopwatch watch;
        HADAL_RETURN_IF_ERROR(Wait(communicator_.Send(send_.data(), bytes, next(), kDoctorTag), "doctor: a message"));
        HADAL_RETURN_IF_ERROR(
            Wait(communicator_.Receive(receive_.data(), 8, next(), kDoctorTag), "doctor: its answer"));
        double& best = bytes == 8 ? latency : fastest;
        best = std::min(best, watch.Seconds());
      }
    }
    measured_.next_latency_seconds = latency / 2;
    measured_.next_bytes_per_second = static_cast<double>(send_.size()) / std::max(1e-9, fastest - latency / 2);
    return absl::OkStatus();
  }

  absl::Status AnswerPrevious() {
    for (int round = 0; round < options_.rounds; ++round) {
      for (const size_t bytes : {send_.size(), size_t{8}}) {
        HADAL_RETURN_IF_ERROR(
            Wait(communicator_.Receive(receive_.data(), bytes, previous(), kDoctorTag), "doctor: a message"));
        HADAL_RETURN_IF_ERROR(Wait(communicator_.Send(send_.data(), 8, previous(), kDoctorTag), "doctor: its answer"));
      }
    }
    return absl::OkStatus();
  }

  absl::Status Ring() {
    if (communicator_.size() == 1) return absl::OkStatus();
    double fastest = std::numeric_limits<double>::infinity();
    for (int round = 0; round < options_.rounds; ++round) {
      HADAL_RETURN_IF_ERROR(collectives_.Barrier("doctor: ring"));
      const Stopwatch watch;
      absl::StatusOr<CommRequest> in =
          communicator_.Receive(receive_.data(), options_.message_bytes, previous(), kDoctorTag);
      absl::StatusOr<CommRequest> out = communicator_.Send(send_.data(), options_.message_bytes, next(), kDoctorTag);
      HADAL_RETURN_IF_ERROR(Wait(std::move(in), "doctor: ring"));
      HADAL_RETURN_IF_ERROR(Wait(std::move(out), "doctor: ring"));
      fastest = std::min(fastest, watch.Seconds());
    }
    measured_.ring_bytes_per_second = static_cast<double>(options_.message_bytes) / fastest;
    return absl::OkStatus();
  }

  void Speed() {
    constexpr int64_t kRows = 256, kWidth = 512;
    std::vector<float> x(kRows * kWidth, 0.5f), weight(kWidth * kWidth, 0.25f), y(kRows * kWidth);
    int64_t calls = 0;
    const Stopwatch watch;
    while (watch.Seconds() < kGemmSeconds) {
      LinearForward(
          stream_,
          {.x = {x.data(), kRows, kWidth}, .weight = {weight.data(), kWidth, kWidth}, .y = {y.data(), kRows, kWidth}});
      ++calls;
    }
    measured_.gflops = 2e-9 * static_cast<double>(calls * kRows * kWidth * kWidth) / watch.Seconds();
  }

  // All at once, as in a step, and all with the largest size that any rank needs.
  absl::Status Gpus() {
    double mine[] = {0};
    if (options_.device != nullptr) {
      const absl::StatusOr<int64_t> size = ProductSize(GpuStream());
      if (size.ok()) mine[0] = static_cast<double>(*size);
      if (!size.ok()) measured_.gpu_trouble = std::string(size.status().message());
    }
    HADAL_ASSIGN_OR_RETURN(const std::vector<std::vector<double>> all, collectives_.AllGather(mine, "doctor: GPUs"));
    double largest = 0;
    for (const std::vector<double>& size : all) largest = std::max(largest, size[0]);
    if (mine[0] == 0) return absl::OkStatus();
    const absl::StatusOr<GpuRates> rates = MeasureGpu(GpuStream(), static_cast<int64_t>(largest));
    if (!rates.ok()) {
      measured_.gpu_trouble = std::string(rates.status().message());
      return absl::OkStatus();
    }
    measured_.gpu_flops = rates->flops;
    measured_.gpu_copy_bytes_per_second = rates->copy_bytes_per_second;
    return absl::OkStatus();
  }
  Stream GpuStream() const { return Stream::On(*options_.device, stream_.threads()); }

  std::string PathOf(int rank) const { return JoinPath(options_.directory, absl::StrCat(".hadal_doctor.", rank)); }

  // Each part runs only if the one before it succeeded on all ranks. A local failure is recorded, not returned, because
  // the other ranks wait.
  absl::Status Files() {
    const std::string mine = PathOf(communicator_.rank());
    const absl::Status written = WriteAndRename(mine);
    if (!written.ok()) measured_.file_trouble = std::string(written.message());
    HADAL_RETURN_IF_ERROR(collectives_.Barrier("doctor: files written"));
    measured_.sees_others = true;
    for (int rank = 0; rank < communicator_.size(); ++rank) measured_.sees_others &= PathExists(PathOf(rank));
    HADAL_RETURN_IF_ERROR(Lock());
    if (const absl::Status removed = RemoveTree(mine); !removed.ok() && measured_.file_trouble.empty()) {
      measured_.file_trouble = std::string(removed.message());
    }
    return absl::OkStatus();
  }

  absl::Status WriteAndRename(const std::string& path) {
    HADAL_RETURN_IF_ERROR(RemoveTree(path));  // left by a killed doctor
    const std::string bytes(static_cast<size_t>(options_.file_bytes), 'x');
    const Stopwatch write;
    HADAL_RETURN_IF_ERROR(ReplaceFile(path, bytes, "large"));
    measured_.write_bytes_per_second = static_cast<double>(bytes.size()) / write.Seconds();
    const Stopwatch rename;
    HADAL_RETURN_IF_ERROR(ReplaceFile(path, "small", "new"));
    measured_.rename_seconds = rename.Seconds();
    return absl::OkStatus();
  }

  // Rank 0 locks its own file; then all other ranks try to.
  absl::Status Lock() {
    const int fd = open(PathOf(0).c_str(), O_RDWR | O_CLOEXEC);
    const auto close_file = absl::MakeCleanup([fd] {
      if (fd >= 0) close(fd);
    });
    struct flock lock = {};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    bool got = false;
    if (communicator_.rank() == 0) got = fd >= 0 && fcntl(fd, F_OFD_SETLK, &lock) == 0;
    HADAL_RETURN_IF_ERROR(collectives_.Barrier("doctor: lock held"));
    if (communicator_.rank() != 0) got = fd >= 0 && fcntl(fd, F_OFD_SETLK, &lock) == 0;
    measured_.lock_excludes = communicator_.rank() == 0 ? got : fd >= 0 && !got;
    return collectives_.Barrier("doctor: lock tried");
  }

  Communicator& communicator_;
  Collectives collectives_;
  const Stream& stream_;
  const ProbeOptions& options_;
  std::vector<char> send_, receive_;
  RankMeasurements measured_;
};

}  // namespace

absl::StatusOr<RankMeasurements> Probe(Communicator& communicator, const Stream& stream, const ProbeOptions& options) {
  return Prober(communicator, stream, options).Run();
}

RankMeasurements Fastest(const RankMeasurements& earlier, RankMeasurements later) {
  for (double RankMeasurements::*const rate :
       {&RankMeasurements::next_bytes_per_second, &RankMeasurements::ring_bytes_per_second, &RankMeasurements::gflops,
        &RankMeasurements::write_bytes_per_second, &RankMeasurements::gpu_flops,
        &RankMeasurements::gpu_copy_bytes_per_second}) {
    later.*rate = std::max(earlier.*rate, later.*rate);
  }
  for (double RankMeasurements::*const seconds :
       {&RankMeasurements::next_latency_seconds, &RankMeasurements::rename_seconds}) {
    later.*seconds = std::min(earlier.*seconds, later.*seconds);
  }
  return later;
}

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(RankMeasurements, next_bytes_per_second, next_latency_seconds,
                                                ring_bytes_per_second, gflops, write_bytes_per_second, rename_seconds,
                                                sees_others, lock_excludes, file_trouble, gpu_flops,
                                                gpu_copy_bytes_per_second, gpu_trouble)

std::string MeasurementsToJson(const RankMeasurements& measured) {
  return nlohmann::json(measured).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

absl::StatusOr<RankMeasurements> MeasurementsFromJson(const std::string& text) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_object() && json.contains("gflops")) return json.get<RankMeasurements>();
  return InternalError("a rank sent measurements that cannot be read; start every rank with the same binary");
}

}  // namespace hadal
