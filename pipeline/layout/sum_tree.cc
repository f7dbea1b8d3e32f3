#include "pipeline/layout/sum_tree.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <map>

namespace hadal {

bool MayDivide(int groups, int replicas) {
  return groups % replicas == 0 && std::has_single_bit(static_cast<unsigned>(groups / replicas));
}

std::vector<SumStep> SumSteps(int leaves) {
  const int block = leaves & -leaves;  // 2^j
  std::vector<SumStep> steps;
  for (int half = 1; half < block; half *= 2) {
    for (int left = 0; left < leaves; left += 2 * half) steps.push_back({left, left + half});
  }
  for (int next = block; next < leaves; next += block) steps.push_back({0, next});
  return steps;
}

std::vector<GroupEnd> GroupEnds(int micro_batches, int groups, int replicas, int replica) {
  const int64_t m = micro_batches, own = groups / replicas, first = replica * own;
  const auto begin = [&](int64_t g) { return ((first + g) * m + groups - 1) / groups; };  // of the replica's group g
  std::vector<GroupEnd> ends;
  std::map<int, int> places;  // by the height of the subtree that is kept there
  for (int64_t b = begin(0); b < begin(own); ++b) {
    const int64_t g = b * groups / m - first;
    const int64_t next = std::min((b + 1) * groups / m - first, own);  // the next group that has micro-batches
    if (next == g) continue;
    GroupEnd& end = ends.emplace_back(GroupEnd{.micro_batch = static_cast<int>(b - begin(0))});
    // The highest subtree that ends between the two groups; `own` is the whole.
    const int height = std::bit_width(static_cast<uint64_t>(g ^ next)) - 1;
    for (int h = 0; h < height; ++h) {
      const int64_t left = g >> (h + 1) << (h + 1);  // where the subtree of height h + 1 that holds g begins
      const bool is_right = (g >> h & 1) != 0;
      if (is_right && begin(left) < begin(left + (int64_t{1} << h))) end.kept.push_back(places.at(h));
    }
    if (next < own) end.keep = places.try_emplace(height, static_cast<int>(places.size())).first->second;
  }
  return ends;
}

}  // namespace hadal
