#include "tests/support/access_counter.h"

#include <algorithm>

#include "runtime/check.h"

namespace hadal::cuda {
namespace {

constexpr int kBanks = 32;
constexpr int64_t kWordBytes = 4, kSectorBytes = 32;

int64_t DivideUp(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Returns the `unit`-byte pieces that accesses of `bytes` bytes touch, each once. REQUIRES: ascending addresses.
std::vector<uintptr_t> Pieces(const std::vector<uintptr_t>& addresses, uint32_t bytes, uintptr_t unit) {
  std::vector<uintptr_t> pieces;
  for (const uintptr_t address : addresses) {
    for (uintptr_t piece = address / unit; piece * unit < address + bytes; ++piece) {
      if (pieces.empty() || pieces.back() < piece) pieces.push_back(piece);
    }
  }
  return pieces;
}

// Returns the number of bytes that the lanes access, each counted once.
int64_t BytesOf(const std::vector<uintptr_t>& addresses, uint32_t bytes) {
  uintptr_t end = 0;
  int64_t total = 0;
  for (const uintptr_t address : addresses) {
    total += static_cast<int64_t>(address + bytes - std::max(address, end));
    end = address + bytes;
  }
  return total;
}

// Counts one group of lanes.
void AddWavefronts(const std::vector<uintptr_t>& addresses, uint32_t bytes, AccessCount& count) {
  const std::vector<uintptr_t> words = Pieces(addresses, bytes, kWordBytes);
  std::array<int64_t, kBanks> of_bank{};
  for (const uintptr_t word : words) ++of_bank[word % kBanks];
  count.units += *std::max_element(of_bank.begin(), of_bank.end());
  count.least += DivideUp(static_cast<int64_t>(words.size()), kBanks);
}

void AddSectors(const std::vector<uintptr_t>& addresses, uint32_t bytes, AccessCount& count) {
  count.units += static_cast<int64_t>(Pieces(addresses, bytes, kSectorBytes).size());
  count.least += DivideUp(BytesOf(addresses, bytes), kSectorBytes);
}

}  // namespace

void AccessCounter::Note(int thread, AccessKind kind, const void* address, size_t bytes,
                         const std::source_location& where) {
  if (threads_.size() <= static_cast<size_t>(thread)) threads_.resize(thread + 1);
  threads_[thread].push_back({kind, static_cast<uint32_t>(bytes), reinterpret_cast<uintptr_t>(address),
                              where.file_name(), where.line(), where.column()});
}

void AccessCounter::Meet(int first, int count) {
  if (threads_.size() < static_cast<size_t>(first) + count) threads_.resize(first + count);
  for (int warp = first; warp < first + count; warp += kLanes) MeetWarp(warp);
}

bool AccessCounter::SameInstruction(const Access& a, const Access& b) {
  return a.kind == b.kind && a.bytes == b.bytes && a.line == b.line && a.column == b.column && a.file == b.file;
}

void AccessCounter::MeetWarp(int first) {
  std::array<size_t, kLanes> next{};
  const auto left = [&](int lane) { return threads_[first + lane].size() - next[lane]; };
  while (true) {
    int behind = 0;
    for (int lane = 1; lane < kLanes; ++lane) {
      if (left(lane) > left(behind)) behind = lane;
    }
    if (left(behind) == 0) break;
    const Access& any = threads_[first + behind][next[behind]];
    Instruction lanes{};
    for (int lane = 0; lane < kLanes; ++lane) {
      if (left(lane) == 0) continue;
      const Access& mine = threads_[first + lane][next[lane]];
      if (!SameInstruction(mine, any)) continue;
      lanes[lane] = &mine;
      ++next[lane];
    }
    Count(lanes, any);
  }
  for (int lane = 0; lane < kLanes; ++lane) threads_[first + lane].clear();
}

void AccessCounter::Count(const Instruction& lanes, const Access& any) {
  HADAL_CHECK(!launches_.empty());
  LaunchCounts& launch = launches_.back();
  AccessCount& count = any.kind == AccessKind::kLoad    ? launch.loads
                       : any.kind == AccessKind::kStore ? launch.stores
                                                        : launch.shared;
  ++count.instructions;
  const int together = !InSharedMemory(any.kind) ? kLanes
                       : any.bytes <= 4          ? kLanes
                       : any.bytes <= 8          ? kLanes / 2
                                                 : kLanes / 4;
  for (int group = 0; group < kLanes; group += together) {
    std::vector<uintptr_t> addresses;
    for (int lane = group; lane < group + together; ++lane) {
      if (lanes[lane] != nullptr) addresses.push_back(lanes[lane]->address);
    }
    if (addresses.empty()) continue;
    std::sort(addresses.begin(), addresses.end());
    if (InSharedMemory(any.kind)) {
      AddWavefronts(addresses, any.bytes, count);
    } else {
      AddSectors(addresses, any.bytes, count);
    }
  }
}

}  // namespace hadal::cuda
