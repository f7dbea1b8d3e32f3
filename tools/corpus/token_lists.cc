#include "tools/corpus/token_lists.h"

#include "absl/status/status.h"
#include "runtime/bytes.h"

namespace hadal {
namespace {

bool TakeLists(std::string_view bytes, TokenLists& lists) {
  size_t count = 0;
  if (!TakeCount(bytes, sizeof(uint64_t), count)) return false;
  lists.resize(count);
  for (std::vector<int32_t>& list : lists) {
    if (!TakeList(bytes, list)) return false;
  }
  return bytes.empty();
}

}  // namespace

std::string TokenListsToBytes(const TokenLists& lists) {
  std::string bytes;
  AppendValue(uint64_t{lists.size()}, bytes);
  for (const std::vector<int32_t>& list : lists) AppendList(list, bytes);
  return bytes;
}

absl::StatusOr<TokenLists> TokenListsFromBytes(std::string_view bytes) {
  TokenLists lists;
  if (TakeLists(bytes, lists)) return lists;
  return absl::InternalError("token lists are damaged; start every rank with the same binary");
}

}  // namespace hadal
