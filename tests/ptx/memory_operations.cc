#include "tests/ptx/memory_operations.h"

namespace hadal::ptx {
namespace {

// Fragments of mma.m16n8k16 (PTX ISA, "Matrix Fragments"): lane = 4 · group + member. Register r of a lane has two
// elements, 2 · member and the next one of
//   A (16 x 16): row group + 8 · (r % 2), columns from 8 · (r / 2)
//   B (16 x 8):  column group, rows from 8 · r
//   C (16 x 8):  element c of 4: row group + 8 · (c / 2), columns from 0
float BFloat16At(uint64_t word, int element) {
  return std::bit_cast<float>(static_cast<uint32_t>(word >> 16 * element) << 16);
}

void MatrixMultiply(Warp& warp, const Instruction& i, uint32_t /*lanes*/) {
  float a[16][16], b[16][8], c[16][8];
  for (int lane = 0; lane < kLanes; ++lane) {
    const int group = lane / 4, member = lane % 4;
    for (int e = 0; e < 2; ++e) {
      for (int r = 0; r < 4; ++r) {
        a[group + 8 * (r % 2)][8 * (r / 2) + 2 * member + e] = BFloat16At(warp.lanes(i.operands[4 + r])[lane], e);
      }
      for (int r = 0; r < 2; ++r) b[8 * r + 2 * member + e][group] = BFloat16At(warp.lanes(i.operands[8 + r])[lane], e);
      for (int r = 0; r < 2; ++r) {
        c[group + 8 * r][2 * member + e] = Value<float>(warp.lanes(i.operands[10 + 2 * r + e])[lane]);
      }
    }
  }
  for (int row = 0; row < 16; ++row) {
    for (int k = 0; k < 16; ++k) {
      for (int column = 0; column < 8; ++column) c[row][column] += a[row][k] * b[k][column];
    }
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int r = 0; r < 4; ++r) {
      warp.lanes(i.operands[r])[lane] = Word<float>(c[lane / 4 + 8 * (r / 2)][2 * (lane % 4) + r % 2]);
    }
  }
}

// Lanes 8m to 8m + 7 have the addresses of the rows of matrix m, 8 x 8. Lane l receives row l / 4, elements 2 · (l % 4)
// and the next one, of each; transposed: of the transposed matrix.
template <bool transposed>
void LoadMatrix(Warp& warp, const Instruction& i, uint32_t /*lanes*/) {
  uint16_t rows[kLanes][8];
  for (int lane = 0; lane < kLanes; ++lane) {
    const uint64_t address = static_cast<uint32_t>(warp.lanes(i.operands[4])[lane] + i.offset);
    const Access access{.address = address, .used = 0xFFFF, .thread = warp.thread(lane)};
    std::memcpy(rows[lane], warp.block().shared.At<false, 16>(access, warp.block().clock), 16);
  }
  for (int m = 0; m < 4; ++m) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const int row = lane / 4, column = 2 * (lane % 4);
      const auto element = [&](int c) { return transposed ? rows[8 * m + c][row] : rows[8 * m + row][c]; };
      warp.lanes(i.operands[m])[lane] = uint64_t{element(column)} | uint64_t{element(column + 1)} << 16;
    }
  }
}

// Operands: to, its predicate, from, lane or mask, 31, all lanes.
template <bool exclusive_or>
void Shuffle(Warp& warp, const Instruction& i, uint32_t /*lanes*/) {
  uint64_t from[kLanes];
  std::memcpy(from, warp.lanes(i.operands[2]), sizeof(from));
  const uint64_t* by = warp.lanes(i.operands[3]);
  for (int lane = 0; lane < kLanes; ++lane) {
    const bool whole_warp = static_cast<uint32_t>(warp.lanes(i.operands[4])[lane]) == kLanes - 1 &&
                            static_cast<uint32_t>(warp.lanes(i.operands[5])[lane]) == kAllLanes;
    if (!whole_warp) throw Fault("a shuffle of a part of the warp");
    warp.lanes(i.operands[0])[lane] = from[((exclusive_or ? lane : 0) ^ by[lane]) % kLanes];
  }
  warp.lanes(i.operands[1])[0] = kAllLanes;
}

}  // namespace

void AddWarpOperations(std::map<std::string, Operation>& table) {
  const auto add = [&](const char* name, Step step) { table[name] = {.kind = Kind::kCollective, .step = step}; };
  add("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", MatrixMultiply);
  add("ldmatrix.sync.aligned.m8n8.x4.shared.b16", LoadMatrix<false>);
  add("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16", LoadMatrix<true>);
  add("shfl.sync.bfly.b32", Shuffle<true>);
  add("shfl.sync.idx.b32", Shuffle<false>);
}

}  // namespace hadal::ptx
