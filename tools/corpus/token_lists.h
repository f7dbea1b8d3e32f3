// Serialises lists of token ids, so that rank 0 can tokenise a text and broadcast the ids. All ranks must run the same
// binary.
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
