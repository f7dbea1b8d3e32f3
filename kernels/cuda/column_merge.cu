#include "kernels/cuda/column_merge.h"

#include "kernels/cuda/column_parts.h"
#include "kernels/cuda/thread_layer.h"

namespace hadal::cuda {
namespace {

constexpr int kMergeColumns = kWarp;  // of a block
constexpr int kMostThreads = 1024;

// A merge in a launch's arguments.
struct TableEntry {
  DevicePointer<const float> parts;
  DevicePointer<float> sums;
  int64_t stride = 0;
  int32_t count = 0, width = 0;
  int32_t runs = 0;         // one warp each
  int32_t first_block = 0;  // of the launch
};
struct Table {
  int32_t size = 0;
  TableEntry entries[kMostMerges];
};

// Returns the last entry whose first block is not after `block`.
HADAL_DEVICE int EntryOf(const Table& table, int64_t block) {
  int found = 0;
  for (int step = kMostMerges / 2; step > 0; step /= 2) {
    const int next = found + step;
    if (next < table.size && table.entries[next].first_block <= block) found = next;
  }
  return found;
}

// A block: kMergeColumns columns of one merge.
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kMostThreads) MergeColumnsKernel(Table table) {
  HADAL_SHARED(float, exchange, kMostThreads);
  const int at = EntryOf(table, BlockX());
  const int run = ThreadIndex() / kMergeColumns, runs = table.entries[at].runs;
  const int64_t column = (BlockX() - table.entries[at].first_block) * kMergeColumns + ThreadIndex() % kMergeColumns;
  const bool mine = column < table.entries[at].width;
  const ColumnParts parts = {table.entries[at].parts + column, table.entries[at].count, table.entries[at].stride};
  float total = mine && run < runs ? parts.SumOfRun(run, runs) : 0.0f;
  exchange[ThreadIndex()] = total;
  Barrier();
  if (run != 0 || !mine) return;
  for (int r = 1; r < runs; ++r) total += exchange[r * kMergeColumns + ThreadIndex()];
  const DevicePointer<float> sum = table.entries[at].sums + column;
  Store(sum, Load(sum) + total);
}

int32_t RunsOf(int64_t parts) {
  const int64_t runs = (parts + kLoadsAhead - 1) / kLoadsAhead, most = kMostThreads / kWarp;
  return static_cast<int32_t>(runs < most ? runs : most);
}

bool Contains(const Table& table, const float* sums) {
  for (int i = 0; i < table.size; ++i) {
    if (table.entries[i].sums.address == sums) return true;
  }
  return false;
}

}  // namespace

void MergeColumns(StreamHandle stream, std::span<const ColumnMerge> merges) {
  while (!merges.empty()) {
    Table table;
    int32_t blocks = 0, most_runs = 0;
    for (const ColumnMerge& merge : merges) {
      HADAL_CHECK(merge.parts != nullptr && merge.sums != nullptr);
      HADAL_CHECK(merge.count >= 1 && merge.width >= 1);
      if (table.size == kMostMerges || Contains(table, merge.sums)) break;
      TableEntry& entry = table.entries[table.size++];
      entry.parts = merge.parts, entry.sums = merge.sums, entry.stride = merge.stride;
      entry.count = static_cast<int32_t>(merge.count), entry.width = static_cast<int32_t>(merge.width);
      entry.runs = RunsOf(merge.count), entry.first_block = blocks;
      blocks += static_cast<int32_t>((merge.width + kMergeColumns - 1) / kMergeColumns);
      if (entry.runs > most_runs) most_runs = entry.runs;
    }
    Launch(stream, {.blocks_x = blocks, .threads = kWarp * most_runs}, MergeColumnsKernel, table);
    merges = merges.subspan(table.size);
  }
}

void MergeColumns(StreamHandle stream, std::span<const ColumnMerge> merges, std::vector<ColumnMerge>* later) {
  if (later == nullptr) return MergeColumns(stream, merges);
  later->insert(later->end(), merges.begin(), merges.end());
}

}  // namespace hadal::cuda
