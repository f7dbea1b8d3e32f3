// Lists of token ids as bytes: rank 0 reads text and broadcasts what it became. Same binary on both sides.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace hadal {

using TokenLists = std::vector<std::vector<int32_t>>;

std::string TokenListsToBytes(const TokenLists& lists);
// Errors: Internal when `bytes` were cut short.
absl::StatusOr<TokenLists> TokenListsFromBytes(std::string_view bytes);

}  // namespace hadal
