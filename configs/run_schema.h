// The schema run.proto with its comments, which the generated code leaves out: `hadal config explain` prints them.
#pragma once

#include <string_view>

namespace hadal {

// A serialised google.protobuf.FileDescriptorSet of run.proto, source info included.
std::string_view RunSchemaBytes();

}  // namespace hadal
