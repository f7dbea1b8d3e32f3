# Writes a file's bytes as a C++ array:  cmake -DINPUT=run.desc -DOUTPUT=run_schema.cc -P embed_schema.cmake
file(READ "${INPUT}" bytes HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
string(REGEX REPLACE "(................................................................................)" "\\1\n" bytes "${bytes}")
file(WRITE "${OUTPUT}" "// Made by embed_schema.cmake.
#include <string_view>

namespace hadal {
namespace {
constexpr unsigned char kBytes[] = {
${bytes}};
}  // namespace

std::string_view RunSchemaBytes();  // declared in tools/config/config_schema.cc
std::string_view RunSchemaBytes() { return {reinterpret_cast<const char*>(kBytes), sizeof(kBytes)}; }

}  // namespace hadal
")
