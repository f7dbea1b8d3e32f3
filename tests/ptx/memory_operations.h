// Values of lanes, and the instructions that load, store or involve a whole warp.
#pragma once

#include <bit>
#include <cstring>
#include <type_traits>

#include "tests/ptx/warp.h"

namespace hadal::ptx {

// The value of type T in a lane's word, and back.
template <typename T>
T Value(uint64_t word) {
  if constexpr (std::is_same_v<T, float>) return std::bit_cast<float>(static_cast<uint32_t>(word));
  if constexpr (std::is_same_v<T, double>) return std::bit_cast<double>(word);
  if constexpr (std::is_integral_v<T>) return static_cast<T>(word);
}
template <typename T>
uint64_t Word(T value) {
  if constexpr (std::is_same_v<T, float>) return std::bit_cast<uint32_t>(value);
  if constexpr (std::is_same_v<T, double>) return std::bit_cast<uint64_t>(value);
  if constexpr (std::is_integral_v<T>) return static_cast<uint64_t>(static_cast<int64_t>(value));
}

enum class Space { kParameter, kShared, kGlobal };

// Loads or stores `parts` elements of `bytes` (a negative number: signed) for each lane.
template <Space space, bool store, int bytes, int parts>
void AccessStep(Warp& warp, const Instruction& i, uint32_t lanes) {
  constexpr int kWidth = bytes < 0 ? -bytes : bytes, kBytes = kWidth * parts;
  BlockState& block = warp.block();
  const Clock clock = block.clock;
  const uint64_t* base = warp.lanes(i.operands[store ? 0 : parts]);
  uint64_t* values[parts];
  for (int part = 0; part < parts; ++part) values[part] = warp.lanes(i.operands[(store ? 1 : 0) + part]);
  Region* region = space == Space::kShared ? &block.shared : space == Space::kParameter ? &block.parameters : nullptr;
  for (; lanes != 0; lanes &= lanes - 1) {
    const int lane = std::countr_zero(lanes);
    Access access{.address = base[lane] + i.offset, .used = i.used & ((1u << kBytes) - 1), .thread = warp.thread(lane)};
    if (space == Space::kShared) access.address = static_cast<uint32_t>(access.address);
    if (space == Space::kGlobal && (region == nullptr || !region->Contains(access.address))) {
      region = &block.global.Find(access.address);
    }
    uint8_t* memory = region->At<store, kBytes>(access, clock);
    for (int part = 0; part < parts; ++part) {
      if constexpr (store) {
        std::memcpy(memory + part * kWidth, &values[part][lane], kWidth);
      } else {
        uint64_t word = 0;
        std::memcpy(&word, memory + part * kWidth, kWidth);
        constexpr int kUnused = 64 - 8 * kWidth;  // for signed elements
        values[part][lane] = bytes > 0 ? word : static_cast<uint64_t>(static_cast<int64_t>(word << kUnused) >> kUnused);
      }
    }
  }
}

// Adds ld and st of a type.
template <typename T>
void AddMemory(std::map<std::string, Operation>& table, const std::string& type) {
  constexpr int kBytes = static_cast<int>(sizeof(T)) * (std::is_signed_v<T> && std::is_integral_v<T> ? -1 : 1);
  const auto add = [&]<int parts>(const std::string& vector, std::integral_constant<int, parts>) {
    if constexpr (sizeof(T) * parts <= 16) {
      table["ld.param" + vector + type] = {.step = AccessStep<Space::kParameter, false, kBytes, parts>};
      table["ld.shared" + vector + type] = {.step = AccessStep<Space::kShared, false, kBytes, parts>};
      table["ld.global" + vector + type] = {.step = AccessStep<Space::kGlobal, false, kBytes, parts>};
      table["st.shared" + vector + type] = {.step = AccessStep<Space::kShared, true, kBytes, parts>};
      table["st.global" + vector + type] = {.step = AccessStep<Space::kGlobal, true, kBytes, parts>};
    }
  };
  add(".", std::integral_constant<int, 1>());
  add(".v2.", std::integral_constant<int, 2>());
  add(".v4.", std::integral_constant<int, 4>());
}

// Adds shfl, ldmatrix and mma.
void AddWarpOperations(std::map<std::string, Operation>& table);

}  // namespace hadal::ptx
