// The second stage of sums over rows: the formula of kernels/column_merge.h, for many sums in one launch.
//
// Numerics: fp32. The parts of a column are divided into runs of kLoadsAhead (column_parts.h), of more if 32 runs are
// not enough. A run is added in ascending order, then the runs in ascending order. So the order depends only on the
// number of parts, not on what else is in the launch. Asynchronous.
#pragma once

#include <span>
#include <vector>

#include "kernels/column_merge.h"
#include "kernels/cuda/device_view.h"

namespace hadal::cuda {

// The most merges of one launch: its arguments hold their table.
inline constexpr int kMostMerges = 64;

// One launch for each kMostMerges merges; more where a destination is there twice, which are then added in order.
void MergeColumns(StreamHandle stream, std::span<const ColumnMerge> merges);
// The same, or, unless `later` is null, appends the merges to it.
void MergeColumns(StreamHandle stream, std::span<const ColumnMerge> merges, std::vector<ColumnMerge>* later);

}  // namespace hadal::cuda
