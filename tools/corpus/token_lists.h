// Serialises lists of token ids, which rank 0 reads as text and broadcasts. Both sides run the same binary.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace hadal {

using TokenLists = std::vector<std::vector<int32_t>>;

std::string TokenListsToBytes(const TokenLists& lists);
// Errors: Internal if `bytes` are truncated.
absl::StatusOr<TokenLists> TokenListsFromBytes(std::string_view bytes);

}  // namespace hadal
