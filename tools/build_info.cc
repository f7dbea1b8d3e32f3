#include "tools/build_info.h"

#include <google/protobuf/stubs/common.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "CLI/Version.hpp"
#include "absl/base/config.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/cuda_host/cuda_device.h"
#include "kernels/instruction_set.h"
#include "runtime/comm/mpi_environment.h"

// launch/CMakeLists.txt defines HADAL_VERSION, HADAL_BUILD_TYPE, HADAL_HIGHWAY_VERSION, HADAL_SENTENCEPIECE_VERSION and
// HADAL_CUDA_TEXT.

namespace hadal {
namespace {

std::string MpiVersion() {
  const absl::StatusOr<const MpiModule*> module = OpenMpi();
  return module.ok() ? (*module)->version() : absl::StrCat("none: ", module.status().message());
}

// 3021012 → 3.21.12
std::string ProtobufVersion() {
  const int version = GOOGLE_PROTOBUF_VERSION;
  return absl::StrCat(version / 1000000, ".", version / 1000 % 1000, ".", version % 1000);
}

// What --device cuda would take, or why it cannot.
std::string GpuText() {
  const absl::StatusOr<std::unique_ptr<Device>> device = cuda::OpenCudaDevice({});
  return device.ok() ? (*device)->Name() : absl::StrCat("none: ", device.status().message());
}

}  // namespace

std::string Version() { return HADAL_VERSION; }

std::string BuildInfo(const std::string& commit) {
  const std::pair<const char*, std::string> lines[] = {
      {"hadal", Version()},
      {"commit", commit},
      {"compiler", absl::StrCat(__VERSION__, ", ", HADAL_BUILD_TYPE)},
      {"MPI", MpiVersion()},
      {"Highway", HADAL_HIGHWAY_VERSION},
      {"Protobuf", ProtobufVersion()},
      {"Abseil", absl::StrCat(ABSL_LTS_RELEASE_VERSION)},
      {"SentencePiece", HADAL_SENTENCEPIECE_VERSION},
      {"nlohmann-json",
       absl::StrCat(NLOHMANN_JSON_VERSION_MAJOR, ".", NLOHMANN_JSON_VERSION_MINOR, ".", NLOHMANN_JSON_VERSION_PATCH)},
      {"CLI11", CLI11_VERSION},
      {"CUDA", HADAL_CUDA_TEXT},
      {"GPU", GpuText()},
      {"this CPU", InstructionSetName(AvailableInstructionSets())}};
  std::string text;
  for (const auto& [name, value] : lines) absl::StrAppendFormat(&text, "%-14s %s\n", name, value);
  return text;
}

}  // namespace hadal
