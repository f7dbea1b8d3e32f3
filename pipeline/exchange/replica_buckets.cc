#include "pipeline/exchange/replica_buckets.h"

#include <algorithm>
#include <cstddef>

namespace hadal {
namespace {

// The sublayer after which a slice's gradient is complete; -1: only when tied tables are summed.
int32_t CompleteAfter(const ModelPlan& plan, int32_t parameter) {
  const ParameterRecord& record = plan.parameters[parameter];
  const bool tied = record.role == ParameterRole::kEmbedding && plan.Uses(parameter).size() > 1;
  return tied ? -1 : record.sublayer;
}

// REQUIRES: both are [1, elements].
bool Follows(AnyMatrix next, AnyMatrix values) {
  return next.storage == values.storage && next.data == static_cast<std::byte*>(values.data) + values.bytes();
}

// Whether the slice has become a part of `last`.
bool Extends(const StateSlice& slice, int32_t first_sublayer, ReplicaBucket& last) {
  if (last.owner != slice.owner || last.first_sublayer < 0 || first_sublayer < 0) return false;
  if (last.gradient.size + slice.elements > ReplicaBucket::kMostElements) return false;
  if (!Follows(slice.as_read(), last.weight)) return false;
  if (slice.gradient.data != last.gradient.data + last.gradient.size) return false;
  last.weight.columns = last.weight.stride += slice.elements;
  last.gradient.size += slice.elements;
  return true;
}

void AddSlice(const StateSlice& slice, int32_t first_sublayer, std::vector<ReplicaBucket>& buckets) {
  if (!buckets.empty() && Extends(slice, first_sublayer, buckets.back())) return;
  for (int64_t first = 0; first < slice.elements; first += ReplicaBucket::kMostElements) {
    const int64_t size = std::min(ReplicaBucket::kMostElements, slice.elements - first);
    AnyMatrix part = slice.as_read().Columns(first, size);
    part.stride = size;
    buckets.push_back({.gradient = {slice.gradient.data + first, size},
                       .weight = part,
                       .owner = slice.owner,
                       .first_sublayer = first_sublayer});
  }
}

}  // namespace

std::vector<ReplicaBucket> MakeReplicaBuckets(const StageState& state) {
  std::vector<ReplicaBucket> buckets;
  for (const bool rounded : {true, false}) {  // as they lie
    for (const StateSlice& slice : state.slices()) {
      if (slice.is_rounded() == rounded) AddSlice(slice, CompleteAfter(state.plan(), slice.parameter), buckets);
    }
  }
  const auto tables = std::stable_partition(buckets.begin(), buckets.end(),
                                            [](const ReplicaBucket& b) { return b.first_sublayer >= 0; });
  std::reverse(buckets.begin(), tables);
  std::stable_sort(buckets.begin(), tables,
                   [](const ReplicaBucket& a, const ReplicaBucket& b) { return a.first_sublayer > b.first_sublayer; });
  return buckets;
}

}  // namespace hadal
