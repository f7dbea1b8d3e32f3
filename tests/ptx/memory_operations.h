// Values of lanes, and the instructions that load, store or involve a whole warp.
#pragma once

#include <bit>
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
void AccessMemory(Warp& warp, const Instruction& i, uint32_t lanes, Space space, bool store, int bytes, int parts);

template <Space space, bool store, int bytes, int parts>
void AccessStep(Warp& warp, const Instruction& i, uint32_t lanes) {
  AccessMemory(warp, i, lanes, space, store, bytes, parts);
}

// Adds ld and st of a type.
template <typename T>
void AddMemory(std::map<std::string, Operation>& table, const std::string& type) {
  constexpr int kBytes = static_cast<int>(sizeof(T)) * (std::is_signed_v<T> && std::is_integral_v<T> ? -1 : 1);
  const auto add = [&]<int parts>(const std::string& vector, std::integral_constant<int, parts>) {
    table["ld.param" + vector + type] = {.step = AccessStep<Space::kParameter, false, kBytes, parts>};
    table["ld.shared" + vector + type] = {.step = AccessStep<Space::kShared, false, kBytes, parts>};
    table["ld.global" + vector + type] = {.step = AccessStep<Space::kGlobal, false, kBytes, parts>};
    table["st.shared" + vector + type] = {.step = AccessStep<Space::kShared, true, kBytes, parts>};
    table["st.global" + vector + type] = {.step = AccessStep<Space::kGlobal, true, kBytes, parts>};
  };
  add(".", std::integral_constant<int, 1>());
  add(".v2.", std::integral_constant<int, 2>());
  add(".v4.", std::integral_constant<int, 4>());
}

// Adds shfl, ldmatrix and mma.
void AddWarpOperations(std::map<std::string, Operation>& table);

}  // namespace hadal::ptx
