#include "pipeline/exchange/replica_buckets.h"

#include <cstddef>
#include <limits>
#include <map>
#include <utility>

#include "pipeline/layout/slice_ownership.h"

namespace hadal {
namespace {

// REQUIRES: both are [1, elements].
bool Follows(AnyMatrix next, AnyMatrix values) {
  return next.storage == values.storage && next.data == static_cast<std::byte*>(values.data) + values.bytes();
}

// Whether the slice has become a part of `last`.
bool Extends(const StateSlice& slice, ReplicaBucket& last) {
  if (last.owner != slice.owner || !Follows(slice.as_read(), last.weight)) return false;
  if (slice.gradient.data != last.gradient.data + last.gradient.size) return false;
  last.weight.columns = last.weight.stride += slice.elements;
  last.gradient.size += slice.elements;
  return true;
}

}  // namespace

std::vector<ReplicaRound> MakeReplicaRounds(const StageState& state) {
  std::vector<ReplicaRound> rounds;
  for (const bool is_rounded : {true, false}) {  // as they lie
    for (const StateSlice& slice : state.slices()) {
      if (slice.is_rounded() != is_rounded) continue;
      while (std::ssize(rounds) <= slice.round)
        rounds.push_back({.first_sublayer = std::numeric_limits<int32_t>::max()});
      ReplicaRound& round = rounds[slice.round];
      const bool tied = IsTiedTable(state.plan(), slice.parameter);
      round.first_sublayer =
          std::min(round.first_sublayer, tied ? -1 : state.plan().parameters[slice.parameter].sublayer);
      if (!round.buckets.empty() && Extends(slice, round.buckets.back())) continue;
      round.buckets.push_back({.gradient = slice.gradient, .weight = slice.as_read(), .owner = slice.owner});
    }
  }
  return rounds;
}

int64_t MostElementsOfARound(const StageState& state) {
  std::map<std::pair<int, int>, int64_t> elements;  // by round and owner
  int64_t most = 0;
  for (const StateSlice& slice : state.slices()) {
    most = std::max(most, elements[{slice.round, slice.owner}] += slice.elements);
  }
  return most;
}

}  // namespace hadal
