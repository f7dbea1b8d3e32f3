// Finds problems in a set of ranks by comparing them with each other: differing settings, low speed, scarce resources.
//
// Ranks are compared with the majority (binary, instruction set, GPU) or the median (speeds, links), so no table of
// machines is needed. Links within a host and between hosts are compared separately, and so are GPUs of different
// models.
// Threads: pure.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tools/doctor/doctor_gpu.h"
#include "tools/doctor/doctor_probe.h"

namespace hadal {

enum class Severity { kNote, kWarning, kBad };

struct Finding {
  Severity severity = Severity::kWarning;
  std::vector<int> ranks;  // the ranks concerned, ascending
  std::string text;        // the problem and its remedy
  bool speed = false;      // the problem is that a rank is slower than others, which may only be so for a moment
};

// Compares ranks with the majority and with the median, and collects the findings of `hadal doctor`.
//
// A rank is "slow" if its value is below half of the median, and "suspect" below three quarters. The median of two
// values is their mean.
class RankComparison {
 public:
  using OfKind = std::function<bool(int rank)>;  // selects the ranks to compare; null: all

  // REQUIRES: one measurement per rank, in rank order. Both must outlive the object.
  RankComparison(const std::vector<DoctorFacts>& ranks, const std::vector<RankMeasurements>& measured);

  const std::vector<DoctorFacts>& ranks() const { return ranks_; }
  const std::vector<RankMeasurements>& measured() const { return measured_; }

  void Add(Severity severity, std::vector<int> ranks, std::string text) {
    findings_.push_back({.severity = severity, .ranks = std::move(ranks), .text = std::move(text)});
  }
  // Adds a finding for ranks whose `value` is not the most frequent one. `what`: the value's name in the text.
  void Majority(Severity severity, const std::string& what, const std::function<std::string(const DoctorFacts&)>& value,
                const OfKind& of_kind, const std::string& remedy);
  // Adds a finding for ranks that are slow or suspect by `value`, which the text shows as value · `scale` in `unit`.
  // `shared`: the ranks of a host share the measured resource, so on a busy host any of them may be slow for a moment;
  // a slow rank is then kBad only if all compared ranks of its host are slow.
  void Slow(const std::string& what, const std::string& unit, double scale,
            const std::function<double(const RankMeasurements&)>& value, const OfKind& of_kind,
            const std::string& remedy, bool shared = false);

  // Returns and clears the findings: bad ones first, otherwise in the order added.
  std::vector<Finding> Take();

 private:
  const std::vector<DoctorFacts>& ranks_;
  const std::vector<RankMeasurements>& measured_;
  std::vector<Finding> findings_;
};

// Returns the findings, bad ones first. REQUIRES: one measurement per rank, in rank order; PlaceOnHosts was called.
std::vector<Finding> FindFaults(const std::vector<DoctorFacts>& ranks, const std::vector<RankMeasurements>& measured);

// Finds problems with the GPUs of a set of ranks: missing on some ranks, shared, of different models, slow; an old
// driver; NCCL missing or with unusual settings.
// Adds its findings to `comparison`; none if no rank requested a GPU.
void CompareGpus(RankComparison& comparison);

}  // namespace hadal
