// The schemas run.proto and compare.proto with their comments, which the generated code leaves out: `hadal config
// explain` prints them.
#pragma once

#include <string_view>

namespace hadal {

// A serialised google.protobuf.FileDescriptorSet of both, source info included.
std::string_view RunSchemaBytes();

}  // namespace hadal
