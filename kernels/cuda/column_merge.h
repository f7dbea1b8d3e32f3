// The second stage of sums over rows: the formula of kernels/column_merge.h, for many sums in one launch.
// Numerics: fp32. The parts of a column are divided into at most 32 runs of kLoadsAhead parts or more (column_parts.h).
// A run is added in ascending order, then the runs in ascending order. So the order depends only on the number of
// parts, not on what else is in the launch. Asynchronous.
#pragma once

#include <span>
#include <vector>

#include "kernels/column_merge.h"
#include "kernels/cuda/device_view.h"

namespace hadal::cuda {

// The most merges of one launch: its arguments hold their table.
inline constexpr int kMostMerges = 64;

// One launch for each kMostMerges merges; merges with the same destination go to different launches, in order.
void MergeColumns(StreamHandle stream, std::span<const ColumnMerge> merges);
// If `later` is null, as the other MergeColumns; else only appends the merges to `later`.
void MergeColumns(StreamHandle stream, std::span<const ColumnMerge> merges, std::vector<ColumnMerge>* later);

}  // namespace hadal::cuda
