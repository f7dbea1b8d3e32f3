// Serialisation of plain values: Append… adds them to a string, Take… removes them from the front of a view. Used for
// messages between processes of one binary and for parts of files.
//
// A value is written as its bytes in memory, padding included. They are little-endian: this file does not compile for
// other machines. A list is a uint64 count followed by the entries, without gaps. Take… returns false if `in` is too
// short; the caller must not read `in` further then.
// Thread safety: pure functions.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>

namespace hadal {

static_assert(std::endian::native == std::endian::little, "files and messages are little-endian");

// Returns a view of the bytes of `values`, valid as long as `values`.
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

// Reads the count of a list whose entries take at least `least_bytes` each. Returns false if `in` cannot hold that many
// entries, so that a damaged count does not cause a large allocation.
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

// Reads a list into `values`, a vector or a string.
template <typename Values>
bool TakeList(std::string_view& in, Values& values) {
  size_t count = 0;
  if (!TakeCount(in, sizeof(std::ranges::range_value_t<Values>), count)) return false;
  values.resize(count);
  return TakeValues(in, std::span(values));
}

// Writes the fields of a record, given as std::tie(record.number, record.text): strings and vectors as lists, all
// other fields as values.
template <typename... Fields>
void AppendFields(const std::tuple<Fields...>& fields, std::string& out) {
  const auto append = [&out](const auto& field) {
    if constexpr (std::ranges::contiguous_range<decltype(field)>) {
      AppendList(field, out);
    } else {
      AppendValue(field, out);
    }
  };
  std::apply([&](const auto&... field) { (append(field), ...); }, fields);
}

template <typename... Fields>
bool TakeFields(std::string_view& in, const std::tuple<Fields&...>& fields) {
  const auto take = [&in](auto& field) {
    if constexpr (std::ranges::contiguous_range<decltype(field)>) {
      return TakeList(in, field);
    } else {
      return TakeValue(in, field);
    }
  };
  return std::apply([&](auto&... field) { return (take(field) && ...); }, fields);
}

}  // namespace hadal
