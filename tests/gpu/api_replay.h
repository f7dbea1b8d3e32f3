// Repeats recorded calls of CUDA's runtime and cuBLASLt (tests/support/api_recording.h) on this machine's device:
// allocations, copies, streams, events, captures, graphs, searches and products of the same sizes, and an empty kernel
// for each launch. So a library that refuses how it is called shows this before any kernel is needed.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace hadal::testing {

// Errors: Internal, with number and text of each line whose call fails, one for each function (of products: each shape)
// and error; calls that use what a refused one would have made are left out. So is a product whose search finds no
// algorithm, unless its epilogue is the default.
absl::Status ReplayApiCalls(absl::string_view recording);

}  // namespace hadal::testing
