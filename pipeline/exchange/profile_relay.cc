#include "pipeline/exchange/profile_relay.h"

#include <algorithm>

#include "runtime/comm/message_tags.h"
#include "runtime/status_macros.h"

namespace hadal {
absl::Status ProfileRelay::Receive(int peer) {
  HADAL_ASSIGN_OR_RETURN(CommRequest request,
                         pipeline_.Receive(&profile_.omega, sizeof(profile_.omega), peer, kProfileTag));
  return pipeline_.Wait(request, absl::Now() + timeout_, "the profile of the residual stream");
}

absl::Status ProfileRelay::Send(int peer) {
  Posted& posted = posted_.emplace_back();
  posted.omega = profile_.omega;
  HADAL_ASSIGN_OR_RETURN(posted.request, pipeline_.Send(&posted.omega, sizeof(posted.omega), peer, kProfileTag));
  return absl::OkStatus();
}

absl::Status ProfileRelay::Drain() {
  for (Posted& posted : posted_) {
    HADAL_RETURN_IF_ERROR(pipeline_.Wait(posted.request, absl::Now() + timeout_, "the profile of the residual stream"));
  }
  posted_.clear();
  return absl::OkStatus();
}

absl::StatusOr<std::vector<ResidualProfile::Entry>> ProfileRelay::Gather(Collectives& world) const {
  std::vector<double> mine;
  for (const ResidualProfile::Entry& entry : profile_.found) {
    mine.insert(mine.end(), {static_cast<double>(entry.parameter), entry.omega});
  }
  HADAL_ASSIGN_OR_RETURN(const std::vector<std::vector<double>> all,
                         world.AllGather(mine, "the profile of the residual stream"));
  std::vector<ResidualProfile::Entry> entries;
  for (const std::vector<double>& values : all) {
    for (size_t i = 0; i < values.size(); i += 2) entries.push_back({static_cast<int32_t>(values[i]), values[i + 1]});
  }
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.parameter < b.parameter; });
  for (const ResidualProfile::Entry& entry : entries) {
    if (!parameters_.Holds(entry.parameter)) continue;
    FillOmega(stream_, parameters_.WeightVector(entry.parameter), entry.omega);
  }
  return entries;
}

}  // namespace hadal
