// The schemas run.proto and compare.proto with their comments, which generated code does not contain, for `hadal config
// explain`.
#pragma once

#include <string_view>

namespace hadal {

// A serialised google.protobuf.FileDescriptorSet of both, source info included.
std::string_view RunSchemaBytes();

}  // namespace hadal
