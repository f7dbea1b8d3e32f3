#include "tests/ptx/warp.h"

#include <algorithm>
#include <bit>

namespace hadal::ptx {

Warp::Warp(const Kernel& kernel, const Grid& grid, int first_thread, BlockState& block)
    : kernel_(kernel), first_thread_(first_thread), block_(block), registers_(int64_t{kernel.registers} * kLanes) {
  for (const auto& [reg, value] : kernel.constants) std::fill_n(lanes(reg), kLanes, value);
  const auto fill = [&](Special special, uint64_t value) {
    const int reg = kernel.special[static_cast<int>(special)];
    if (reg >= 0) std::fill_n(lanes(reg), kLanes, value);
  };
  fill(Special::kThreads, grid.threads);
  fill(Special::kBlocksX, grid.blocks_x);
  const int thread = kernel.special[static_cast<int>(Special::kThread)];
  for (int lane = 0; thread >= 0 && lane < kLanes; ++lane) lanes(thread)[lane] = first_thread + lane;
}

void Warp::Start(int64_t block_x, int64_t block_y) {
  const int x = kernel_.special[static_cast<int>(Special::kBlockX)];
  const int y = kernel_.special[static_cast<int>(Special::kBlockY)];
  if (x >= 0) std::fill_n(lanes(x), kLanes, block_x);
  if (y >= 0) std::fill_n(lanes(y), kLanes, block_y);
  at_.fill(0);
  alive_ = kAllLanes;
  waiting_ = 0;
}

bool Warp::Run() {
  while (alive_ != 0) {
    const uint32_t ready = alive_ & ~waiting_;
    if (ready == 0) {
      const bool together = waiting_ == kAllLanes && std::count(at_.begin(), at_.end(), at_[0]) == kLanes;
      if (!together) throw Fault("only a part of the warp's lanes comes here");
      current_ = &kernel_.code[at_[0]];
      waiting_ = 0;
      at_.fill(at_[0] + 1);
      if (current_->operation.kind == Kind::kBarrier) return true;
      current_->operation.step(*this, *current_, kAllLanes);
      continue;
    }
    int at = INT32_MAX, next = INT32_MAX;
    uint32_t lanes = 0;
    for (uint32_t rest = ready; rest != 0; rest &= rest - 1) {
      const int lane = std::countr_zero(rest);
      if (at_[lane] < at) {
        next = at;
        at = at_[lane];
        lanes = 0;
      } else if (at_[lane] > at) {
        next = std::min(next, at_[lane]);
      }
      if (at_[lane] == at) lanes |= uint32_t{1} << lane;
    }
    RunTogether(at, next, lanes);
  }
  return false;
}

void Warp::RunTogether(int at, int next, uint32_t lanes) {
  while (at < next) {
    const Instruction& instruction = kernel_.code.at(at);
    current_ = &instruction;
    steps_ += kLanes;
    uint32_t on = lanes;
    if (instruction.predicate >= 0) {
      const auto mask = static_cast<uint32_t>(this->lanes(instruction.predicate)[0]);
      on &= instruction.negated ? ~mask : mask;
    }
    const Kind kind = instruction.operation.kind;
    if (kind == Kind::kPlain || (kind == Kind::kCollective && on == kAllLanes)) {
      if (on != 0) instruction.operation.step(*this, instruction, on);
      ++at;
    } else if (kind == Kind::kBranch) {
      if (on != 0 && on != lanes) {
        SetAt(on, instruction.target);
        return SetAt(lanes & ~on, at + 1);
      }
      at = on == 0 ? at + 1 : instruction.target;
    } else if (kind == Kind::kExit) {
      alive_ &= ~on;
      lanes &= ~on;
      ++at;
      if (lanes == 0) return;
    } else {
      if (on != lanes) throw Fault("only a part of the warp's lanes comes here");
      waiting_ |= lanes;
      return SetAt(lanes, at);
    }
  }
  SetAt(lanes, at);
}

void Warp::SetAt(uint32_t lanes, int at) {
  for (; lanes != 0; lanes &= lanes - 1) at_[std::countr_zero(lanes)] = at;
}

namespace {

void RunBlock(std::vector<Warp>& warps, BlockState& block, const Warp*& running) {
  const Instruction* barrier = nullptr;
  do {
    barrier = nullptr;
    for (size_t i = 0; i < warps.size(); ++i) {
      running = &warps[i];
      const Instruction* reached = warps[i].Run() ? warps[i].current() : nullptr;
      if (i > 0 && reached != barrier) throw Fault("the block's warps do not come to the same barrier");
      barrier = reached;
    }
    ++block.clock.phase;
  } while (barrier != nullptr);
}

}  // namespace

int64_t Launch(const Kernel& kernel, const Grid& grid, Region& parameters, Global& global, Clock& clock) {
  Region shared(0, kernel.shared_bytes);
  clock.launch = ++clock.phase;
  BlockState block{.global = global, .shared = shared, .parameters = parameters, .clock = clock};
  std::vector<Warp> warps;
  for (int first = 0; first < grid.threads; first += kLanes) warps.emplace_back(kernel, grid, first, block);
  for (int64_t i = 0; i < grid.blocks_x * grid.blocks_y; ++i) {
    const int64_t x = i % grid.blocks_x, y = i / grid.blocks_x;
    block.clock.block = block.clock.phase;
    shared.Forget();
    for (Warp& warp : warps) warp.Start(x, y);
    const Warp* running = nullptr;
    try {
      RunBlock(warps, block, running);
    } catch (const Fault& fault) {
      throw Fault(std::string(fault.what()) + ": \"" + running->current()->text + "\", block (" + std::to_string(x) +
                  ", " + std::to_string(y) + "), warp of thread " + std::to_string(running->thread(0)) + ", kernel " +
                  kernel.name);
    }
  }
  clock = block.clock;
  int64_t steps = 0;
  for (const Warp& warp : warps) steps += warp.steps();
  return steps;
}

}  // namespace hadal::ptx
