# Precompiles the headers that nearly every file includes; parsing them again for each file would take a third of the
# build time. Do not add headers that contain code rather than declarations (CLI11's would be compiled again with each
# file: five seconds; only tools/command_line.cc includes it). A file still includes what it uses
# (tests/check_includes.sh). -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON disables this.
file(GENERATE OUTPUT "${PROJECT_BINARY_DIR}/precompiled.cc" CONTENT "")

# hadal_precompiled_headers(NAME DEPENDS target... HEADERS header...)
# Users must be compiled with the same flags, so this target depends only on what its headers need.
function(hadal_precompiled_headers NAME)
  cmake_parse_arguments(ARG "" "" "DEPENDS;HEADERS" ${ARGN})
  add_library(${NAME} OBJECT "${PROJECT_BINARY_DIR}/precompiled.cc")
  target_link_libraries(${NAME} PRIVATE hadal_build_flags ${ARG_DEPENDS})
  target_precompile_headers(${NAME} PRIVATE ${ARG_HEADERS})
endfunction()

set(HADAL_COMMON_HEADERS
  <algorithm> <array> <cmath> <cstdint> <functional> <map> <memory> <optional> <span> <string> <utility> <vector>
  <absl/status/status.h> <absl/status/statusor.h> <absl/strings/str_cat.h> <absl/strings/str_format.h> <absl/time/time.h>)
hadal_precompiled_headers(hadal_precompiled
  DEPENDS absl::status absl::statusor absl::strings absl::str_format absl::time HEADERS ${HADAL_COMMON_HEADERS})
if(HADAL_BUILD_TESTS)
  hadal_precompiled_headers(hadal_test_precompiled
    DEPENDS absl::status absl::statusor absl::strings absl::str_format absl::time GTest::gmock hadal_test_flags
    HEADERS ${HADAL_COMMON_HEADERS} <gmock/gmock.h> <gtest/gtest.h>)
endif()
