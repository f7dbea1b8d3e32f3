#include "tools/doctor/doctor_findings.h"

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/instruction_set.h"
#include "runtime/check.h"
#include "tools/median.h"

namespace hadal {
namespace {

constexpr double kSlow = 0.5, kSuspect = 0.75;

constexpr int64_t kFewFiles = 1024;
constexpr int64_t kLittleSharedMemory = int64_t{64} << 20;

// Everything except GPUs.
class HostComparison {
 public:
  explicit HostComparison(RankComparison& comparison)
      : comparison_(comparison), ranks_(comparison.ranks()), measured_(comparison.measured()) {}

  void Run() {
    comparison_.Majority(
        Severity::kBad, "binary", [](const DoctorFacts& f) { return absl::StrFormat("CRC %08x", f.binary_crc32c); },
        nullptr, "Start every rank with the same file.");
    comparison_.Majority(
        Severity::kWarning, "instruction set",
        [](const DoctorFacts& f) { return InstructionSetName(f.instruction_sets); }, nullptr,
        "A rank without AVX2 makes all ranks use SSE4. Steps wait for the slowest: identical nodes would be faster.");
    Cpus();
    Limits();
    comparison_.Slow(
        "matrix products", "GFLOP/s", 1, [](const RankMeasurements& m) { return m.gflops; }, nullptr,
        "Check its node for other jobs, a low clock or a hot device.", /*shared=*/true);
    Links();
    Files();
  }

 private:
  void Add(Severity severity, std::vector<int> ranks, std::string text) {
    comparison_.Add(severity, std::move(ranks), std::move(text));
  }

  // Ranks of one host must not compete for its CPUs.
  void Cpus() {
    std::map<std::string, std::vector<const DoctorFacts*>> hosts;
    for (const DoctorFacts& facts : ranks_) hosts[facts.host].push_back(&facts);
    for (const auto& [host, ranks] : hosts) {
      std::set<int> cpus;
      int threads = 0;
      std::vector<int> who;
      for (const DoctorFacts* facts : ranks) {
        cpus.insert(facts->cpus.begin(), facts->cpus.end());
        threads += facts->threads;
        who.push_back(facts->rank);
        if (facts->threads > static_cast<int>(facts->cpus.size())) {
          Add(Severity::kWarning, {facts->rank},
              absl::StrFormat("%d threads on %d CPUs (%s): the launcher bound the rank. Try mpirun --bind-to none, or "
                              "srun --cpus-per-task.",
                              facts->threads, facts->cpus.size(), CpuList(facts->cpus)));
        }
      }
      if (threads > static_cast<int>(cpus.size())) {
        Add(Severity::kWarning, who,
            absl::StrFormat(
                "%d threads in total share %d CPUs (%s). Lower pipeline.threads, or start fewer ranks per host.",
                threads, cpus.size(), CpuList({cpus.begin(), cpus.end()})));
      }
    }
  }

  void Limits() {
    for (const DoctorFacts& facts : ranks_) {
      if (facts.open_files_limit >= 0 && facts.open_files_limit < kFewFiles) {
        Add(Severity::kWarning, {facts.rank},
            absl::StrFormat("can open only %d files; MPI needs one or more per peer. Raise the limit with ulimit -n.",
                            facts.open_files_limit));
      }
      if (facts.memory_limit_bytes >= 0) {
        Add(Severity::kWarning, {facts.rank},
            absl::StrFormat("its address space is limited to %.1f GiB (ulimit -v); compare with hadal plan.",
                            static_cast<double>(facts.memory_limit_bytes) / (1 << 30)));
      }
      if (facts.shared_memory_bytes >= 0 && facts.shared_memory_bytes < kLittleSharedMemory &&
          facts.ranks_on_host > 1) {
        Add(Severity::kWarning, {facts.rank},
            absl::StrFormat("/dev/shm has %d MiB free; MPI's shared memory between ranks of a host needs more.",
                            facts.shared_memory_bytes >> 20));
      }
    }
  }

  bool LeavesHost(int rank) const { return ranks_[rank].host != ranks_[(rank + 1) % ranks_.size()].host; }

  void Links() {
    if (ranks_.size() < 2) return;
    for (const bool leaves : {false, true}) {
      const std::string where = leaves ? " between hosts" : " within a host";
      const auto of_kind = [this, leaves](int rank) { return LeavesHost(rank) == leaves; };
      comparison_.Slow(
          absl::StrCat("link to the next rank,", where), "GB/s", 1e-9,
          [](const RankMeasurements& m) { return m.next_bytes_per_second; }, of_kind,
          "Check the cable, the switch port, and the interface that MPI chose (btl_tcp_if_include).", !leaves);
      comparison_.Slow(
          absl::StrCat("link with all ranks sending at once,", where), "GB/s", 1e-9,
          [](const RankMeasurements& m) { return m.ring_bytes_per_second; }, of_kind,
          "Other traffic shares its node or switch.", !leaves);
    }
  }

  void Files() {
    for (size_t r = 0; r < ranks_.size(); ++r) {
      const RankMeasurements& measured = measured_[r];
      const int rank = static_cast<int>(r);
      if (!measured.file_trouble.empty()) {
        Add(Severity::kBad, {rank}, absl::StrCat("cannot write to the run directory: ", measured.file_trouble));
        continue;
      }
      if (!measured.sees_others) {
        Add(Severity::kBad, {rank},
            "does not see the other ranks' files: the run directory is not on a shared file system. Checkpoints need "
            "one.");
      } else if (!measured.lock_excludes) {
        Add(Severity::kWarning, {rank}, "file locks do not exclude other ranks here (a mount without locking?).");
      }
    }
    // The ranks of a host share its path to the file system, and which of them is first says nothing: each host's
    // fastest stands for it.
    std::map<std::string, int> fastest;
    for (const DoctorFacts& facts : ranks_) {
      int& rank = fastest.try_emplace(facts.host, facts.rank).first->second;
      if (measured_[facts.rank].write_bytes_per_second > measured_[rank].write_bytes_per_second) rank = facts.rank;
    }
    comparison_.Slow(
        "writing to the run directory, the fastest rank of its host", "MB/s", 1e-6,
        [](const RankMeasurements& m) { return m.write_bytes_per_second; },
        [this, &fastest](int rank) { return fastest.at(ranks_[rank].host) == rank; },
        "Its host's mount or path to the file system is slow; checkpoints wait for the slowest rank.");
  }

  RankComparison& comparison_;
  const std::vector<DoctorFacts>& ranks_;
  const std::vector<RankMeasurements>& measured_;
};

}  // namespace

RankComparison::RankComparison(const std::vector<DoctorFacts>& ranks, const std::vector<RankMeasurements>& measured)
    : ranks_(ranks), measured_(measured) {
  HADAL_CHECK_EQ(ranks.size(), measured.size());
}

void RankComparison::Majority(Severity severity, const std::string& what,
                              const std::function<std::string(const DoctorFacts&)>& value, const OfKind& of_kind,
                              const std::string& remedy) {
  std::map<std::string, std::vector<int>> by_value;
  for (const DoctorFacts& facts : ranks_) {
    if (!of_kind || of_kind(facts.rank)) by_value[value(facts)].push_back(facts.rank);
  }
  const auto most = std::ranges::max_element(by_value, {}, [](const auto& entry) { return entry.second.size(); });
  for (const auto& [found, ranks] : by_value) {
    if (found == most->first) continue;
    Add(severity, ranks, absl::StrCat("its ", what, " is ", found, "; most ranks have ", most->first, ". ", remedy));
  }
}

void RankComparison::Slow(const std::string& what, const std::string& unit, double scale,
                          const std::function<double(const RankMeasurements&)>& value, const OfKind& of_kind,
                          const std::string& remedy, bool shared) {
  std::vector<double> values;
  std::map<std::string, double> fastest;  // of a host
  const auto compared = [&](size_t rank) { return !of_kind || of_kind(static_cast<int>(rank)); };
  for (size_t r = 0; r < ranks_.size(); ++r) {
    if (!compared(r)) continue;
    values.push_back(value(measured_[r]));
    double& best = fastest[ranks_[r].host];
    best = std::max(best, values.back());
  }
  const double median = values.empty() ? 0 : Median(values);
  for (size_t r = 0; r < ranks_.size() && values.size() > 1; ++r) {
    if (!compared(r) || value(measured_[r]) >= kSuspect * median) continue;
    const double judged = shared ? fastest[ranks_[r].host] : value(measured_[r]);
    findings_.push_back({.severity = judged < kSlow * median ? Severity::kBad : Severity::kWarning,
                         .ranks = {static_cast<int>(r)},
                         .text = absl::StrFormat("%s: %.2f %s, the median is %.2f %s. %s", what,
                                                 scale * value(measured_[r]), unit, scale * median, unit, remedy),
                         .speed = true});
  }
}

std::vector<Finding> RankComparison::Take() {
  std::ranges::stable_sort(findings_, std::ranges::greater(), &Finding::severity);
  return std::exchange(findings_, {});
}

std::vector<Finding> FindFaults(const std::vector<DoctorFacts>& ranks, const std::vector<RankMeasurements>& measured) {
  RankComparison comparison(ranks, measured);
  HostComparison(comparison).Run();
  CompareGpus(comparison);
  return comparison.Take();
}

}  // namespace hadal
