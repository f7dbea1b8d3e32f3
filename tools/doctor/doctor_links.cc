#include "tools/doctor/doctor_links.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "runtime/clock.h"
#include "runtime/comm/message_tags.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

TransferGroup EveryPair(int ranks) {
  TransferGroup group;
  for (int a = 0; a < ranks; ++a) {
    group.ranks.push_back(a);
    for (int b = a + 1; b < ranks; ++b) group.pairs.push_back({a, b});
  }
  return group;
}

}  // namespace

bool WouldUseNccl(const std::vector<DoctorFacts>& ranks) {
  std::set<std::string> places;
  for (const DoctorFacts& facts : ranks) {
    const GpuFacts& gpu = facts.gpu;
    if (!gpu.found() || gpu.nccl == 0 || gpu.nccl != ranks[0].gpu.nccl || !gpu.nccl_refusal.empty()) return false;
    places.insert(PlaceOfGpu(facts));
  }
  return ranks.size() > 1 && places.size() == ranks.size();
}

LinkProbe::~LinkProbe() {
  nccl_.reset();
  if (message_ != nullptr) device_.Free(message_);
}

absl::StatusOr<LinkMeasurements> LinkProbe::Run(const ProbeOptions& options) {
  HADAL_ASSIGN_OR_RETURN(message_, device_.Allocate(options.message_bytes));
  const TransferGroup everyone = EveryPair(control_.size());
  LinkMeasurements measured{.bytes_per_second = std::vector<double>(control_.size())};
  const int64_t free_before = device_.FreeBytes();
  const Stopwatch watch;
  HADAL_ASSIGN_OR_RETURN(nccl_, NcclCommunicator::Create(library_, device_, control_, {&everyone, 1}, options.timeout));
  measured.connect_seconds = watch.Seconds();
  measured.device_bytes = free_before - device_.FreeBytes();
  for (const RankPair& pair : InRounds(everyone.pairs)) {
    if (pair.first != control_.rank() && pair.second != control_.rank()) continue;
    for (const auto& [sender, receiver] : {pair, RankPair{pair.second, pair.first}}) {
      HADAL_ASSIGN_OR_RETURN(const double rate, BytesPerSecond(sender, receiver, options));
      if (sender == control_.rank()) measured.bytes_per_second[receiver] = rate;
    }
  }
  HADAL_RETURN_IF_ERROR(nccl_->Close(options.timeout));
  return measured;
}

// The first message, which is not timed, waits until both ranks have come to this pair.
absl::StatusOr<double> LinkProbe::BytesPerSecond(int sender, int receiver, const ProbeOptions& options) {
  const bool sends = sender == control_.rank();
  const auto message = [&]() -> absl::Status {
    const int64_t bytes = options.message_bytes;
    HADAL_ASSIGN_OR_RETURN(CommRequest request, sends ? nccl_->Send(message_, bytes, receiver, kDoctorTag)
                                                      : nccl_->Receive(message_, bytes, sender, kDoctorTag));
    return nccl_->Wait(request, absl::Now() + options.timeout, "doctor: a message over NCCL");
  };
  HADAL_RETURN_IF_ERROR(message());
  const Stopwatch watch;
  for (int round = 0; round < options.rounds; ++round) HADAL_RETURN_IF_ERROR(message());
  return static_cast<double>(options.message_bytes * options.rounds) / watch.Seconds();
}

void AppendLinks(const std::vector<LinkMeasurements>& links, std::string& text) {
  if (links.empty()) return;
  absl::StrAppendFormat(&text, "\nNCCL from each rank to the %d others, both ways\n%4s  %9s %10s %12s %13s  %s\n",
                        links.size() - 1, "rank", "connect s", "MiB a link", "median GB/s", "slowest GB/s", "to rank");
  for (size_t rank = 0; rank < links.size(); ++rank) {
    std::vector<std::pair<double, size_t>> rates;
    for (size_t peer = 0; peer < links.size(); ++peer) {
      if (peer != rank) rates.emplace_back(1e-9 * links[rank].bytes_per_second[peer], peer);
    }
    std::sort(rates.begin(), rates.end());
    const double mib = static_cast<double>(links[rank].device_bytes) / (1 << 20);
    absl::StrAppendFormat(&text, "%4d  %9.2f %10.1f %12.2f %13.2f  %d\n", rank, links[rank].connect_seconds,
                          mib / static_cast<double>(2 * rates.size()), rates[rates.size() / 2].first, rates[0].first,
                          rates[0].second);
  }
}

}  // namespace hadal
