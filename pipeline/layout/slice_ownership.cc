#include "pipeline/layout/slice_ownership.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <span>
#include <utility>

#include "kernels/orthogonalize.h"

namespace hadal {
namespace {

// Slices of a stage that are dealt together, from the last one down.
using Part = std::vector<OwnedSlice*>;

struct Run {
  std::span<OwnedSlice* const> slices;
  int64_t elements = 0;
};

// The next runs of `part`, which begins at `next`, of at least `wanted` elements each.
std::vector<Run> CutRuns(const Part& part, size_t& next, int64_t wanted, int replicas) {
  std::vector<Run> runs;
  while (next < part.size() && std::ssize(runs) < replicas) {
    const size_t first = next;
    int64_t elements = 0;
    do {
      elements += part[next++]->elements;
    } while (elements < wanted && next < part.size());
    runs.push_back({std::span(part).subspan(first, next - first), elements});
  }
  return runs;
}

// Gives each slice its owner and its round, from `round` on. `owned`: elements of each replica.
void Deal(const Part& part, int64_t bucket, std::vector<int64_t>& owned, int& round) {
  const int replicas = static_cast<int>(owned.size());
  int64_t left = 0;
  for (const OwnedSlice* slice : part) left += slice->elements;
  for (size_t next = 0; next < part.size(); ++round) {
    const int64_t shortest = std::min(bucket / 8, left / replicas);
    const int64_t wanted = std::min(bucket, std::max(left / (2 * replicas), shortest));
    std::vector<Run> runs = CutRuns(part, next, wanted, replicas);
    std::stable_sort(runs.begin(), runs.end(), [](const Run& a, const Run& b) { return a.elements > b.elements; });
    std::vector<int> owners(replicas);
    std::iota(owners.begin(), owners.end(), 0);
    std::stable_sort(owners.begin(), owners.end(), [&](int a, int b) { return owned[a] < owned[b]; });
    for (size_t r = 0; r < runs.size(); ++r) {
      owned[owners[r]] += runs[r].elements;
      left -= runs[r].elements;
      for (OwnedSlice* slice : runs[r].slices) {
        slice->replica = owners[r];
        slice->round = round;
      }
    }
  }
}

// Gives each matrix of `part` an owner and a round, from `round` on.
void DealMatrices(const ModelPlan& plan, const Part& part, int64_t bucket, int replicas, int& round) {
  const auto cost = [&](int32_t p) {
    const ParameterRecord& matrix = plan.parameters[p];
    return plan.is_frozen(p) ? static_cast<double>(matrix.elements())
                             : OrthogonalizeOperations(matrix.rows, matrix.columns, /*steps=*/1, /*by_halves=*/true);
  };
  std::vector<int32_t> matrices;
  for (const OwnedSlice* slice : part) {
    if (slice->slice == 0) matrices.push_back(slice->parameter);
  }
  std::stable_sort(matrices.begin(), matrices.end(), [&](int32_t a, int32_t b) { return cost(a) > cost(b); });
  std::vector<double> costs(replicas, 0);
  std::map<int32_t, int> owners;
  for (const int32_t p : matrices) {
    const auto least = std::min_element(costs.begin(), costs.end());
    *least += cost(p);
    owners[p] = static_cast<int>(least - costs.begin());
  }
  std::vector<int64_t> elements(replicas, 0);  // of the round
  int32_t last = -1;
  for (OwnedSlice* slice : part) {
    slice->replica = owners[slice->parameter];
    if (std::exchange(last, slice->parameter) != slice->parameter) {
      const int64_t more = plan.parameters[slice->parameter].elements();
      int64_t& of_owner = elements[slice->replica];
      if (of_owner > 0 && of_owner + more > bucket) {
        std::fill(elements.begin(), elements.end(), 0);
        ++round;
      }
      of_owner += more;
    }
    slice->round = round;
  }
  if (!part.empty()) ++round;
}

// Numbers the rounds in the order in which they become complete: by their first slices, which are complete last.
void NumberRounds(const ModelPlan& plan, int rounds, std::vector<OwnedSlice>& slices) {
  using Depth = std::pair<bool, int32_t>;  // not a tied table, first parameter
  std::vector<Depth> depths(rounds, {true, std::numeric_limits<int32_t>::max()});
  for (const OwnedSlice& slice : slices) {
    Depth& depth = depths[slice.round];
    depth = std::min(depth, Depth(!IsTiedTable(plan, slice.parameter), slice.parameter));
  }
  std::vector<int> order(rounds), numbers(rounds);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return depths[a] > depths[b]; });
  for (int i = 0; i < rounds; ++i) numbers[order[i]] = i;
  for (OwnedSlice& slice : slices) slice.round = numbers[slice.round];
}

// `elements`: of all slices, which are ascending.
void DealStage(const ModelPlan& plan, int64_t elements, int replicas, std::vector<OwnedSlice>& slices) {
  Part matrices, rounded, others, tied;
  for (auto slice = slices.rbegin(); slice != slices.rend(); ++slice) {
    const bool in_bf16 = plan.read_storage(slice->parameter) == Storage::kBFloat16;
    Part& part = plan.uses_muon(slice->parameter)      ? matrices
                 : IsTiedTable(plan, slice->parameter) ? tied
                 : in_bf16                             ? rounded
                                                       : others;
    part.push_back(&*slice);
  }
  std::vector<int64_t> owned(replicas, 0);
  int rounds = 0;
  DealMatrices(plan, matrices, BucketElements(elements, replicas), replicas, rounds);
  for (const Part* part : {&rounded, &others, &tied}) Deal(*part, BucketElements(elements, replicas), owned, rounds);
  NumberRounds(plan, rounds, slices);
}

}  // namespace

int64_t BucketElements(int64_t elements, int replicas) {
  constexpr int64_t kRounds = 16, kMebibyte = int64_t{1} << 18;
  return std::clamp(elements / (kRounds * replicas), kMebibyte, 8 * kMebibyte);
}

bool IsTiedTable(const ModelPlan& plan, int32_t parameter) {
  return plan.parameters[parameter].is_table() && plan.Uses(parameter).size() > 1;
}

std::vector<OwnedSlice> SlicesOfStage(const ModelPlan& plan, const PipelineLayout& pipeline, int stage) {
  std::vector<OwnedSlice> slices;
  int64_t total = 0;
  for (const int32_t s : pipeline.SublayersOf(stage)) {
    const SublayerRecord& sublayer = plan.sublayers[s];
    for (int32_t p = sublayer.first_parameter; p < sublayer.first_parameter + sublayer.parameters; ++p) {
      const int64_t elements = plan.parameters[p].elements();
      for (int64_t slice = 0; slice < SliceCount(plan.parameters[p]); ++slice) {
        slices.push_back({p, slice, std::min(kSliceElements, elements - slice * kSliceElements)});
      }
      total += elements;
    }
  }
  DealStage(plan, total, pipeline.grid.replicas, slices);
  return slices;
}

std::vector<SliceRange> UpdatedSlices(const ModelPlan& plan, const PipelineLayout& pipeline, int stage) {
  if (!pipeline.shard_optimizer_state) return {SliceRange()};
  std::vector<SliceRange> ranges;
  bool extends = false;  // the last range, up to the slice before
  for (const OwnedSlice& slice : SlicesOfStage(plan, pipeline, stage)) {
    const bool mine = slice.replica == pipeline.replica;
    if (mine && !extends) ranges.push_back({.begin = {slice.parameter, slice.slice}});
    if (mine) ranges.back().end = {slice.parameter, slice.slice + 1};
    extends = mine;
  }
  return ranges;
}

std::vector<std::vector<OwnedSlice>> SlicesByStage(const ModelPlan& plan, const PipelineLayout& pipeline) {
  std::vector<std::vector<OwnedSlice>> stages;
  stages.reserve(pipeline.grid.stages);
  for (int stage = 0; stage < pipeline.grid.stages; ++stage) stages.push_back(SlicesOfStage(plan, pipeline, stage));
  return stages;
}

}  // namespace hadal
