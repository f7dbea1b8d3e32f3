#include "tools/corpus/token_lists.h"

#include <cstring>

#include "absl/status/status.h"

namespace hadal {
namespace {

void AppendNumber(uint64_t number, std::string& bytes) {
  bytes.append(reinterpret_cast<const char*>(&number), sizeof(number));
}

// A number of things of `size` bytes each that are still to come.
bool TakeCount(std::string_view& bytes, size_t size, uint64_t& count) {
  if (bytes.size() < sizeof(count)) return false;
  std::memcpy(&count, bytes.data(), sizeof(count));
  bytes.remove_prefix(sizeof(count));
  return count <= bytes.size() / size;
}

bool TakeLists(std::string_view bytes, TokenLists& lists) {
  uint64_t count = 0;
  if (!TakeCount(bytes, sizeof(uint64_t), count)) return false;
  lists.resize(count);
  for (std::vector<int32_t>& list : lists) {
    uint64_t tokens = 0;
    if (!TakeCount(bytes, sizeof(int32_t), tokens)) return false;
    list.resize(tokens);
    if (tokens > 0) std::memcpy(list.data(), bytes.data(), tokens * sizeof(int32_t));
    bytes.remove_prefix(tokens * sizeof(int32_t));
  }
  return bytes.empty();
}

}  // namespace

std::string TokenListsToBytes(const TokenLists& lists) {
  std::string bytes;
  AppendNumber(lists.size(), bytes);
  for (const std::vector<int32_t>& list : lists) {
    AppendNumber(list.size(), bytes);
    bytes.append(reinterpret_cast<const char*>(list.data()), list.size() * sizeof(int32_t));
  }
  return bytes;
}

absl::StatusOr<TokenLists> TokenListsFromBytes(std::string_view bytes) {
  TokenLists lists;
  if (TakeLists(bytes, lists)) return lists;
  return absl::InternalError("token lists arrived damaged; start every rank with the same binary");
}

}  // namespace hadal
