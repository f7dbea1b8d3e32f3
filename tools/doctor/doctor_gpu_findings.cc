#include "tools/doctor/doctor_findings.h"

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace hadal {
namespace {

using RanksByText = std::map<std::string, std::vector<int>>;

std::string KindOf(const DoctorFacts& facts) {
  const cuda::CudaFacts& device = facts.gpu.device;
  return absl::StrFormat("%s, %s, %.0f GiB", device.model, device.architecture,
                         static_cast<double>(device.memory_bytes) / (1 << 30));
}

class GpuComparison {
 public:
  explicit GpuComparison(RankComparison& comparison) : comparison_(comparison), ranks_(comparison.ranks()) {
    found_ = static_cast<int>(std::count_if(ranks_.begin(), ranks_.end(), [](const auto& r) { return r.gpu.found(); }));
  }

  void Run() {
    None();
    if (found_ == 0) return;
    const bool shared = Shared();
    Unlike();
    Drivers();
    Nccl(shared);
    Rates();
  }

 private:
  bool Has(int rank) const { return ranks_[rank].gpu.found(); }
  auto OfThoseThatHave() const {
    return [this](int rank) { return Has(rank); };
  }

  // Reports what `text` says of each rank, once for all ranks with the same text; "": nothing.
  void Group(const std::function<std::pair<Severity, std::string>(const DoctorFacts&)>& text) {
    std::map<std::pair<Severity, std::string>, std::vector<int>> by_text;
    for (const DoctorFacts& facts : ranks_) by_text[text(facts)].push_back(facts.rank);
    for (auto& [what, ranks] : by_text) {
      if (!what.second.empty()) comparison_.Add(what.first, std::move(ranks), what.second);
    }
  }
  // `prefix` and each rank's `value`, where it has one.
  void Group(Severity severity, const char* prefix, std::string GpuFacts::*value, const char* suffix = "") {
    Group([&](const DoctorFacts& facts) -> std::pair<Severity, std::string> {
      const std::string& found = facts.gpu.*value;
      return {severity, found.empty() ? "" : absl::StrCat(prefix, found, suffix)};
    });
  }

  // Ranks without a GPU, by reason.
  void None() {
    Group([&](const DoctorFacts& facts) -> std::pair<Severity, std::string> {
      const GpuFacts& gpu = facts.gpu;
      if (!gpu.asked || gpu.found()) return {};
      if (found_ > 0) {
        return {Severity::kBad,
                absl::StrCat("no GPU, although other ranks have one: ", gpu.why_none,
                             ". Check the node (nvidia-smi, dmesg), and exclude it until it is repaired.")};
      }
      if (gpu.required) return {Severity::kBad, absl::StrCat("no GPU, but --device cuda requires one: ", gpu.why_none)};
      if (gpu.absent) return {Severity::kNote, absl::StrCat("no GPU: ", gpu.why_none)};
      return {Severity::kWarning,
              absl::StrCat("the GPU cannot be used, so training would run on the CPU: ", gpu.why_none)};
    });
  }

  // Two processes on one GPU: the same device, or the same address on the same host (parts of one).
  bool Shared() {
    RanksByText by_place;
    for (const DoctorFacts& facts : ranks_) {
      if (facts.gpu.found()) by_place[PlaceOfGpu(facts)].push_back(facts.rank);
    }
    // A machine with fewer GPUs than ranks, evenly shared, may be intended.
    const bool all = std::all_of(by_place.begin(), by_place.end(), [](const auto& p) { return p.second.size() > 1; });
    bool any = false;
    for (auto& [place, ranks] : by_place) {
      if (ranks.size() < 2) continue;
      any = true;
      comparison_.Add(all ? Severity::kWarning : Severity::kBad, std::move(ranks),
                      absl::StrCat("share one GPU (", place,
                                   "): each has a part of its speed and memory, and messages go through the host. "
                                   "Start one rank per GPU (srun --ntasks-per-node equal to --gpus-per-node)."));
    }
    return any;
  }

  void Unlike() {
    const auto have = OfThoseThatHave();
    comparison_.Majority(Severity::kWarning, "GPU", KindOf, have,
                         "The slowest one limits all, and the bits may depend on which rank has which.");
    comparison_.Majority(
        Severity::kWarning, "driver", [](const DoctorFacts& f) { return CudaVersionText(f.gpu.device.driver); }, have,
        "Use identical nodes to keep the bits the same.");
    comparison_.Majority(
        Severity::kWarning, "cuBLASLt", [](const DoctorFacts& f) { return LibraryVersionText(f.gpu.device.cublas); },
        have, "Its products may sum in another order: use one LD_LIBRARY_PATH on all nodes.");
    comparison_.Majority(
        Severity::kWarning, "NCCL setting",
        [](const DoctorFacts& f) { return f.gpu.nccl_variables.empty() ? "none" : f.gpu.nccl_variables; }, have,
        "Export the same variables on all nodes (mpirun -x).");
  }

  void Drivers() {
    Group([](const DoctorFacts& facts) -> std::pair<Severity, std::string> {
      const cuda::CudaFacts& device = facts.gpu.device;
      if (!facts.gpu.found() || device.driver >= device.runtime) return {};
      return {Severity::kWarning, absl::StrCat("the driver supports CUDA ", CudaVersionText(device.driver),
                                               ", older than this program's ", CudaVersionText(device.runtime),
                                               ": it runs by minor-version compatibility, which GPUs newer than the "
                                               "program's kernels do not have. Update the driver.")};
    });
  }

  void Nccl(bool shared) {
    Group(Severity::kNote, "NCCL variables are set: ", &GpuFacts::nccl_variables);
    if (ranks_.size() < 2 || shared || found_ < static_cast<int>(ranks_.size()))
      return;  // messages go through the host
    Group(Severity::kBad, "runs over NCCL are refused: ", &GpuFacts::nccl_refusal, ".");
    Group([](const DoctorFacts& facts) -> std::pair<Severity, std::string> {
      if (facts.gpu.nccl != 0) return {};
      return {Severity::kWarning,
              absl::StrCat("no NCCL, although each rank has its own GPU, so all messages go through the host: ",
                           facts.gpu.why_no_nccl)};
    });
    comparison_.Majority(
        Severity::kWarning, "NCCL", [](const DoctorFacts& f) { return LibraryVersionText(f.gpu.nccl); },
        [this](int rank) { return ranks_[rank].gpu.nccl != 0; },
        "With different versions all messages go through the host.");
  }

  // GPUs of one model are compared with each other.
  void Rates() {
    RanksByText kinds;
    for (const DoctorFacts& facts : ranks_) {
      const RankMeasurements& measured = comparison_.measured()[facts.rank];
      if (facts.gpu.found() && !measured.gpu_trouble.empty()) {
        comparison_.Add(Severity::kWarning, {facts.rank},
                        absl::StrCat("its GPU was not measured: ", measured.gpu_trouble));
      } else if (facts.gpu.found()) {
        kinds[facts.gpu.device.model].push_back(facts.rank);
      }
    }
    for (const auto& kind : kinds) {
      const auto of_kind = [&ranks = kind.second](int rank) {
        return std::binary_search(ranks.begin(), ranks.end(), rank);
      };
      comparison_.Slow(
          "its GPU's products in bf16", "TFLOP/s", 1e-12, [](const RankMeasurements& m) { return m.gpu_flops; },
          of_kind, "Check nvidia-smi -q: clocks and throttle reasons, temperature, other processes.");
      comparison_.Slow(
          "copies within its GPU", "GB/s", 1e-9, [](const RankMeasurements& m) { return m.gpu_copy_bytes_per_second; },
          of_kind, "Check nvidia-smi -q: memory clock, remapped rows, other processes.");
    }
  }

  RankComparison& comparison_;
  const std::vector<DoctorFacts>& ranks_;
  int found_ = 0;
};

}  // namespace

void CompareGpus(RankComparison& comparison) { GpuComparison(comparison).Run(); }

}  // namespace hadal
