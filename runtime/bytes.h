// Plain values as bytes: appended to a string, and taken from the front of a view. Processes of one binary exchange
// lists and records this way, and a file's parts look like this before they are written.
//
// A value is its object representation: little-endian (other machines do not compile this), padding included. A list is
// a uint64 number of entries and then the entries, without gaps. Reading trusts nothing: a Take… that finds too few
// bytes returns false; then `in` must not be read further.
// Thread safety: pure.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

namespace hadal {

static_assert(std::endian::native == std::endian::little, "files and messages are little-endian");

// A view of the bytes of `values`, valid as long as `values`.
template <std::ranges::contiguous_range Values>
std::string_view AsBytes(const Values& values) {
  static_assert(std::is_trivially_copyable_v<std::ranges::range_value_t<Values>>);
  return {reinterpret_cast<const char*>(std::ranges::data(values)),
          std::ranges::size(values) * sizeof(std::ranges::range_value_t<Values>)};
}

template <typename T>
void AppendValue(const T& value, std::string& out) {
  out += AsBytes(std::span(&value, 1));
}

template <typename T>
bool TakeValues(std::string_view& in, std::span<T> values) {
  static_assert(std::is_trivially_copyable_v<T>);
  if (in.size() < values.size_bytes()) return false;
  if (!values.empty()) std::memcpy(static_cast<void*>(values.data()), in.data(), values.size_bytes());
  in.remove_prefix(values.size_bytes());
  return true;
}

template <typename T>
bool TakeValue(std::string_view& in, T& value) {
  return TakeValues(in, std::span(&value, 1));
}

// Takes a number of things that need `least_bytes` or more each. False if `in` cannot hold that many, so that a damaged
// number makes nobody allocate much.
inline bool TakeCount(std::string_view& in, size_t least_bytes, size_t& count) {
  uint64_t value = 0;
  if (!TakeValue(in, value) || value > in.size() / least_bytes) return false;
  count = value;
  return true;
}

template <std::ranges::contiguous_range Values>
void AppendList(const Values& values, std::string& out) {
  AppendValue(uint64_t{std::ranges::size(values)}, out);
  out += AsBytes(values);
}

// `values`: a vector, or a string.
template <typename Values>
bool TakeList(std::string_view& in, Values& values) {
  size_t count = 0;
  if (!TakeCount(in, sizeof(std::ranges::range_value_t<Values>), count)) return false;
  values.resize(count);
  return TakeValues(in, std::span(values));
}

}  // namespace hadal
