#include "tools/doctor_findings.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "runtime/check.h"

namespace hadal {
namespace {

constexpr double kSlow = 0.5, kSuspect = 0.75;
constexpr int64_t kFewFiles = 1024;
constexpr int64_t kLittleSharedMemory = int64_t{64} << 20;

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::nth_element(values.begin(), values.begin() + std::ssize(values) / 2, values.end());
  return values[values.size() / 2];
}

class Comparison {
 public:
  Comparison(const std::vector<RankFacts>& ranks, const std::vector<RankMeasurements>& measured)
      : ranks_(ranks), measured_(measured) {
    HADAL_CHECK_EQ(ranks.size(), measured.size());
  }

  std::vector<Finding> Run() {
    Majority(
        Severity::kBad, "binary", [](const RankFacts& f) { return absl::StrFormat("CRC %08x", f.binary_crc32c); },
        "Start every rank with the same file.");
    Majority(
        Severity::kWarning, "instruction set",
        [](const RankFacts& f) { return InstructionSetName(f.instruction_sets); },
        "All ranks will use the widest set that all have; nodes of one kind would be faster.");
    Cpus();
    Limits();
    Slow(
        "matrix products", "GFLOP/s", 1, [](const RankMeasurements& m) { return m.gflops; }, nullptr,
        "Look for other jobs, a low clock or a hot device on its node.");
    Links();
    Files();
    std::stable_sort(findings_.begin(), findings_.end(),
                     [](const Finding& a, const Finding& b) { return a.severity > b.severity; });
    return std::move(findings_);
  }

 private:
  using Value = std::function<double(const RankMeasurements&)>;

  void Add(Severity severity, std::vector<int> ranks, std::string text) {
    findings_.push_back({severity, std::move(ranks), std::move(text)});
  }

  // Those whose value is not the most frequent one.
  void Majority(Severity severity, const std::string& what, const std::function<std::string(const RankFacts&)>& value,
                const std::string& remedy) {
    std::map<std::string, std::vector<int>> by_value;
    for (const RankFacts& facts : ranks_) by_value[value(facts)].push_back(facts.rank);
    const auto most = std::max_element(by_value.begin(), by_value.end(),
                                       [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
    for (const auto& [found, ranks] : by_value) {
      if (found == most->first) continue;
      Add(severity, ranks,
          absl::StrCat("another ", what, ", ", found, ", than the others', ", most->first, ". ", remedy));
    }
  }

  // Ranks of one host must share its CPUs without treading on each other.
  void Cpus() {
    std::map<std::string, std::vector<const RankFacts*>> hosts;
    for (const RankFacts& facts : ranks_) hosts[facts.host].push_back(&facts);
    for (const auto& [host, ranks] : hosts) {
      std::set<int> cpus;
      int threads = 0;
      std::vector<int> who;
      for (const RankFacts* facts : ranks) {
        cpus.insert(facts->cpus.begin(), facts->cpus.end());
        threads += facts->threads;
        who.push_back(facts->rank);
        if (facts->threads > static_cast<int>(facts->cpus.size())) {
          Add(Severity::kWarning, {facts->rank},
              absl::StrFormat("%d threads on %d CPUs (%s): the launcher bound it. Try mpirun --bind-to none, or srun "
                              "--cpus-per-task.",
                              facts->threads, facts->cpus.size(), CpuList(facts->cpus)));
        }
      }
      if (threads > static_cast<int>(cpus.size())) {
        Add(Severity::kWarning, who,
            absl::StrFormat(
                "%d threads in all share %d CPUs (%s). Set pipeline.threads lower, or start fewer ranks a host.",
                threads, cpus.size(), CpuList({cpus.begin(), cpus.end()})));
      }
    }
  }

  void Limits() {
    for (const RankFacts& facts : ranks_) {
      if (facts.open_files_limit >= 0 && facts.open_files_limit < kFewFiles) {
        Add(Severity::kWarning, {facts.rank},
            absl::StrFormat("may open only %d files; MPI wants one or more a peer. Raise it with ulimit -n.",
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

  // Compares the ranks for which `of_kind` holds (null: all) with their median.
  void Slow(const std::string& what, const std::string& unit, double scale, const Value& value,
            const std::function<bool(int)>& of_kind, const std::string& remedy) {
    std::vector<double> values;
    for (size_t r = 0; r < ranks_.size(); ++r) {
      if (!of_kind || of_kind(static_cast<int>(r))) values.push_back(value(measured_[r]));
    }
    const double median = Median(values);
    for (size_t r = 0; r < ranks_.size() && values.size() > 1; ++r) {
      if ((of_kind && !of_kind(static_cast<int>(r))) || value(measured_[r]) >= kSuspect * median) continue;
      Add(value(measured_[r]) < kSlow * median ? Severity::kBad : Severity::kWarning, {static_cast<int>(r)},
          absl::StrFormat("%s: %.2f %s, the median is %.2f %s. %s", what, scale * value(measured_[r]), unit,
                          scale * median, unit, remedy));
    }
  }

  bool LeavesHost(int rank) const { return ranks_[rank].host != ranks_[(rank + 1) % ranks_.size()].host; }

  void Links() {
    if (ranks_.size() < 2) return;
    for (const bool leaves : {false, true}) {
      const std::string where = leaves ? " between hosts" : " within a host";
      const auto of_kind = [this, leaves](int rank) { return LeavesHost(rank) == leaves; };
      Slow(
          absl::StrCat("its link to the next rank,", where), "GB/s", 1e-9,
          [](const RankMeasurements& m) { return m.next_bytes_per_second; }, of_kind,
          "Look at the cable, the switch port, or the interface MPI chose (btl_tcp_if_include).");
      Slow(
          absl::StrCat("its link with all ranks sending at once,", where), "GB/s", 1e-9,
          [](const RankMeasurements& m) { return m.ring_bytes_per_second; }, of_kind,
          "Its node or its switch is shared with other traffic.");
    }
  }

  void Files() {
    for (size_t r = 0; r < ranks_.size(); ++r) {
      const RankMeasurements& measured = measured_[r];
      const int rank = static_cast<int>(r);
      if (!measured.file_trouble.empty()) {
        Add(Severity::kBad, {rank}, absl::StrCat("cannot write where the run will: ", measured.file_trouble));
        continue;
      }
      if (!measured.sees_others) {
        Add(Severity::kBad, {rank},
            "does not see the other ranks' files: the run directory is not on a shared file system. Checkpoints need "
            "one.");
      } else if (!measured.lock_excludes) {
        Add(Severity::kWarning, {rank}, "file locks do not keep ranks apart here (a mount without locking?).");
      }
    }
    Slow(
        "writing to the run directory", "MB/s", 1e-6,
        [](const RankMeasurements& m) { return m.write_bytes_per_second; }, nullptr,
        "Its mount or its path to the file system is slow; checkpoints wait for the slowest rank.");
  }

  const std::vector<RankFacts>& ranks_;
  const std::vector<RankMeasurements>& measured_;
  std::vector<Finding> findings_;
};

}  // namespace

std::vector<Finding> FindFaults(const std::vector<RankFacts>& ranks, const std::vector<RankMeasurements>& measured) {
  return Comparison(ranks, measured).Run();
}

std::string DescribeRanks(const std::vector<int>& which, const std::vector<RankFacts>& ranks) {
  std::set<std::string> hosts;
  for (const int rank : which) hosts.insert(ranks[rank].host);
  return absl::StrCat(which.size() == 1 ? "rank " : "ranks ", absl::StrJoin(which, ", "),
                      hosts.size() == 1 ? " (host " : " (hosts ", absl::StrJoin(hosts, ", "), ")");
}

}  // namespace hadal
