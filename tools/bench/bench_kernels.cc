#include "tools/bench/bench_kernels.h"

#include <algorithm>
#include <cstring>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/clock.h"
#include "tools/median.h"

namespace hadal {
namespace {

constexpr int64_t kMostSets = 64;
constexpr int64_t kMostTurns = 10000;  // per batch

// Per call of `turn`: the medians over batches.
struct TurnSeconds {
  double wall = 0, cpu = 0;
};
TurnSeconds TimeTurns(const BenchKernelsOptions& options, const Stream& stream, const std::function<void()>& turn) {
  const auto batch = [&](int64_t turns) {
    stream.Synchronize();
    const Stopwatch watch;
    for (int64_t i = 0; i < turns; ++i) turn();
    stream.Synchronize();
    return watch.Seconds();
  };
  batch(1);  // the first batch has one-time costs
  const double once = std::max(batch(1), 1e-9);
  const int64_t turns = std::clamp(static_cast<int64_t>(options.batch_seconds / once) + 1, int64_t{1}, kMostTurns);
  std::vector<double> wall, cpu;
  for (int32_t i = 0; i < options.repeats; ++i) {
    const std::clock_t start = std::clock();
    wall.push_back(batch(turns) / static_cast<double>(turns));
    cpu.push_back(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC / static_cast<double>(turns));
  }
  return {Median(std::move(wall)), Median(std::move(cpu))};
}

// Bytes per second that a copy of `bytes` reads and writes. On the CPU every thread copies its part.
absl::StatusOr<double> CopyRate(const BenchKernelsOptions& options, const Stream& stream, int64_t bytes) {
  KernelTensors tensors(stream);
  const int64_t floats = (bytes + 3) / 4;
  const Vector from = tensors.Floats(Traffic::kRead, floats), to = tensors.Floats(Traffic::kWritten, floats);
  HADAL_RETURN_IF_ERROR(tensors.status());
  const TurnSeconds seconds = TimeTurns(options, stream, [&] {
    if (stream.device() != nullptr) return stream.Copy(to.data, from.data, 4 * floats);
    stream.ForRanges(floats, 4096, [&](int64_t begin, int64_t end) {
      std::memcpy(to.data + begin, from.data + begin, sizeof(float) * (end - begin));
    });
  });
  return tensors.bytes() / seconds.wall;
}

absl::StatusOr<double> FastestCopy(const BenchKernelsOptions& options, const Stream& stream) {
  double fastest = 0;
  for (const int64_t times : {1, 2, 4}) {
    HADAL_ASSIGN_OR_RETURN(const double rate, CopyRate(options, stream, times * options.shapes.large_bytes));
    fastest = std::max(fastest, rate);
  }
  return fastest;
}

absl::StatusOr<KernelSpeed> MeasureCase(const BenchKernelsOptions& options, const Stream& stream,
                                        const KernelCase& kernel) {
  KernelTensors tensors(stream);
  std::vector<KernelLaunch> launches;
  KernelSpeed speed = {.kernel = kernel.kernel,
                       .shape = kernel.shape,
                       .storage = kernel.storage,
                       .large = kernel.large,
                       .has_goal = kernel.has_goal,
                       .flops = kernel.flops};
  const auto one_more = [&]() -> absl::Status {
    HADAL_ASSIGN_OR_RETURN(KernelLaunch launch, kernel.prepare(stream, tensors));
    launches.push_back(std::move(launch));
    return absl::OkStatus();
  };
  HADAL_RETURN_IF_ERROR(one_more());
  speed.bytes = tensors.bytes();
  const int64_t sets = std::clamp(static_cast<int64_t>(static_cast<double>(options.rotation_bytes) / speed.bytes) + 1,
                                  int64_t{2}, kMostSets);
  while (std::ssize(launches) < sets) HADAL_RETURN_IF_ERROR(one_more());
  const auto launch_all = [&] {
    for (const KernelLaunch& launch : launches) launch();
  };
  std::function<void()> turn = launch_all;
  std::unique_ptr<DeviceGraph> graph;
  if (stream.device() != nullptr && kernel.recordable) {
    launch_all();  // loads kernels and plans products
    stream.Synchronize();
    stream.device()->BeginCapture();
    launch_all();
    HADAL_ASSIGN_OR_RETURN(graph, stream.device()->EndCapture());
    turn = [&] { stream.device()->Launch(*graph); };
  }
  const TurnSeconds seconds = TimeTurns(options, stream, turn);
  speed.seconds = seconds.wall / static_cast<double>(sets);
  speed.cpu_seconds = seconds.cpu / static_cast<double>(sets);
  stream.Synchronize();
  return speed;
}

std::string NameOf(const KernelSpeed& speed) {
  return absl::StrCat(speed.kernel, speed.storage == Storage::kFloat32 ? ", fp32, " : ", bf16, ", speed.shape);
}

double ShareOf(const KernelSpeed& speed, const KernelSpeeds& speeds) {
  return speed.bytes / speed.seconds / speeds.copy_bytes_per_second;
}

// The slowest kernel with a goal; null if none was measured.
const KernelSpeed* Slowest(const KernelSpeeds& speeds) {
  const KernelSpeed* slowest = nullptr;
  for (const KernelSpeed& speed : speeds.kernels) {
    if (!speed.has_goal) continue;
    if (slowest == nullptr || ShareOf(speed, speeds) < ShareOf(*slowest, speeds)) slowest = &speed;
  }
  return slowest;
}

std::string DeviceOf(const Stream& stream) {
  return stream.device() != nullptr ? stream.device()->Name() : absl::StrCat("CPU, ", stream.threads(), " thread(s)");
}

void PrintRow(const KernelSpeeds& speeds, std::ostream& out) {
  const KernelSpeed& speed = speeds.kernels.back();
  const bool first_product = speed.flops != 0 && (speeds.kernels.size() == 1 || speeds.kernels.end()[-2].flops == 0);
  if (first_product) {
    out << absl::StrFormat("\n%-36s %-4s  %-34s %11s %10s %9s\n", "kernel", "", "shape", "GFLOP", "us", "TFLOP/s");
  }
  const double microseconds = 1e6 * speed.seconds;
  out << absl::StrFormat("%-36s %-4s  %-34s ", speed.kernel, speed.storage == Storage::kFloat32 ? "fp32" : "bf16",
                         speed.shape);
  if (speed.flops != 0) {
    out << absl::StrFormat("%11.2f %10.1f %9.2f\n", 1e-9 * speed.flops, microseconds,
                           1e-12 * speed.flops / speed.seconds);
  } else {
    out << absl::StrFormat("%11.2f %10.1f %9.1f %7.1f%%\n", 1e-6 * speed.bytes, microseconds,
                           1e-9 * speed.bytes / speed.seconds, 100 * ShareOf(speed, speeds));
  }
  out << std::flush;
}

// Prints the latest result.
void PrintProgress(const KernelSpeeds& speeds, const Stream& stream, std::ostream& out) {
  if (!speeds.kernels.empty()) return PrintRow(speeds, out);
  out << DeviceOf(stream)
      << absl::StrFormat("\ncopy: %.1f GB/s, read and written\n\n", 1e-9 * speeds.copy_bytes_per_second);
  out << absl::StrFormat("%-36s %-4s  %-34s %11s %10s %9s %8s\n", "kernel", "", "shape", "MB", "us", "GB/s", "of copy");
}

void PrintGoal(const KernelSpeeds& speeds, const Stream& stream, std::ostream& out) {
  const KernelSpeed* const slowest = Slowest(speeds);
  if (stream.device() == nullptr || slowest == nullptr) return;
  const double share = ShareOf(*slowest, speeds);
  out << absl::StrFormat("\ngoal, %.0f%% of the copy on large tensors: %s; the slowest is at %.1f%% (%s)\n",
                         100 * kCopyShareGoal, share >= kCopyShareGoal ? "reached" : "NOT reached", 100 * share,
                         NameOf(*slowest));
}

void PrintJson(const KernelSpeeds& speeds, const Stream& stream, std::ostream& out) {
  nlohmann::ordered_json json{{"device", DeviceOf(stream)}, {"copy_bytes_per_second", speeds.copy_bytes_per_second}};
  for (const KernelSpeed& speed : speeds.kernels) {
    nlohmann::ordered_json row{{"kernel", speed.kernel},
                               {"storage", speed.storage == Storage::kFloat32 ? "fp32" : "bf16"},
                               {"shape", speed.shape},
                               {"large", speed.large},
                               {"has_goal", speed.has_goal},
                               {"seconds", speed.seconds},
                               {"cpu_seconds", speed.cpu_seconds},
                               {"bytes", speed.bytes}};
    if (speed.flops != 0) {
      row["flops"] = speed.flops;
    } else {
      row["share_of_copy"] = ShareOf(speed, speeds);
    }
    json["kernels"].push_back(row);
  }
  if (const KernelSpeed* const slowest = Slowest(speeds); stream.device() != nullptr && slowest != nullptr) {
    json["goal_share_of_copy"] = kCopyShareGoal;
    json["goal_reached"] = ShareOf(*slowest, speeds) >= kCopyShareGoal;
  }
  out << json.dump(2) << "\n";
}

}  // namespace

absl::StatusOr<KernelSpeeds> MeasureKernels(const BenchKernelsOptions& options, const Stream& stream,
                                            const std::function<void(const KernelSpeeds&)>& measured) {
  std::vector<KernelCase> cases = MemoryBoundCases(options.shapes, stream);
  for (KernelCase& product : ProductCases(options.shapes, stream)) cases.push_back(std::move(product));
  std::erase_if(cases, [&](const KernelCase& kernel) { return !absl::StartsWith(kernel.kernel, options.only); });
  if (cases.empty()) {
    return InvalidArgumentError("no kernel's name begins with \"", options.only,
                                "\"; run without --only to list all kernels");
  }
  std::stable_partition(cases.begin(), cases.end(), [](const KernelCase& kernel) { return kernel.has_goal; });
  KernelSpeeds speeds;
  HADAL_ASSIGN_OR_RETURN(speeds.copy_bytes_per_second, FastestCopy(options, stream));
  if (measured) measured(speeds);
  for (const KernelCase& kernel : cases) {
    absl::StatusOr<KernelSpeed> speed = MeasureCase(options, stream, kernel);
    if (!speed.ok()) {
      return absl::Status(speed.status().code(),
                          absl::StrCat(kernel.kernel, ", ", kernel.shape, ": ", speed.status().message(),
                                       "; use smaller tensors (--large-mib)"));
    }
    speeds.kernels.push_back(*std::move(speed));
    if (measured) measured(speeds);
  }
  return speeds;
}

absl::Status RunBenchKernels(const BenchKernelsOptions& options, const Stream& stream, std::ostream& out) {
  if (options.json) {
    HADAL_ASSIGN_OR_RETURN(const KernelSpeeds speeds, MeasureKernels(options, stream));
    PrintJson(speeds, stream, out);
    return absl::OkStatus();
  }
  HADAL_ASSIGN_OR_RETURN(const KernelSpeeds speeds, MeasureKernels(options, stream, [&](const KernelSpeeds& so_far) {
                           PrintProgress(so_far, stream, out);
                         }));
  PrintGoal(speeds, stream, out);
  return absl::OkStatus();
}

}  // namespace hadal
