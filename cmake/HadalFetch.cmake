# Builds the third-party packages of HadalDependencies.cmake from pinned sources, for machines without root or apt:
# cmake -DHADAL_FETCH_DEPENDENCIES=ON. The versions are Debian 12's; each archive is checked against its SHA-256.
# Without a network, pass unpacked sources with CMake's FETCHCONTENT_SOURCE_DIR_<NAME>. MPI always comes from the
# machine, because a cluster has its own.
include(FetchContent)
set(CMAKE_POLICY_VERSION_MINIMUM 3.5)    # newer CMakes reject what older packages require
set(CMAKE_POLICY_DEFAULT_CMP0077 NEW)    # variables set here override the packages' options …
set(CMAKE_POLICY_DEFAULT_CMP0126 NEW)    # … and cache entries

# hadal_fetch(NAME URL SHA256): makes a package's targets available; builds only what hadal needs.
macro(hadal_fetch NAME LOCATION SHA256)
  FetchContent_Declare(${NAME} URL "${LOCATION}" URL_HASH SHA256=${SHA256} DOWNLOAD_EXTRACT_TIMESTAMP OFF)
  FetchContent_GetProperties(${NAME})
  if(NOT ${NAME}_POPULATED)
    message(STATUS "Fetching ${NAME}")
    FetchContent_Populate(${NAME})
    add_subdirectory("${${NAME}_SOURCE_DIR}" "${${NAME}_BINARY_DIR}" EXCLUDE_FROM_ALL SYSTEM)
  endif()
endmacro()

set(BUILD_SHARED_LIBS OFF)
set(BUILD_TESTING OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)  # Abseil is also in libhadal_mpi.so

set(ABSL_PROPAGATE_CXX_STD ON)
set(ABSL_ENABLE_INSTALL OFF)
hadal_fetch(absl https://github.com/abseil/abseil-cpp/archive/refs/tags/20220623.1.tar.gz
  91ac87d30cc6d79f9ab974c51874a704de9c2647c40f6932597329a282217ba8)

set(HWY_ENABLE_TESTS OFF)
set(HWY_ENABLE_EXAMPLES OFF)
set(HWY_ENABLE_CONTRIB OFF)
set(HWY_ENABLE_INSTALL OFF)
hadal_fetch(hwy https://github.com/google/highway/archive/refs/tags/1.0.3.tar.gz
  566fc77315878473d9a6bd815f7de78c73734acdcb745c3dde8579560ac5440e)
add_library(hwy::hwy ALIAS hwy)

set(JSON_BuildTests OFF)
hadal_fetch(nlohmann_json https://github.com/nlohmann/json/archive/refs/tags/v3.11.2.tar.gz
  d69f9deb6a75e2580465c6c4c5111b89c4dc2fa94e3a85fcd2ffcd9a143d9273)

hadal_fetch(cli11 https://github.com/CLIUtils/CLI11/archive/refs/tags/v2.1.2.tar.gz
  26291377e892ba0e5b4972cdfd4a2ab3bf53af8dac1f4ea8fe0d1376b625c8cb)

set(protobuf_BUILD_TESTS OFF)
set(protobuf_INSTALL OFF)
set(protobuf_WITH_ZLIB OFF)
hadal_fetch(protobuf https://github.com/protocolbuffers/protobuf/archive/refs/tags/v3.21.12.tar.gz
  930c2c3b5ecc6c9c12615cf5ad93f1cd6e12d0aba862b572e076259970ac3a53)
# What FindProtobuf provides besides the targets.
function(protobuf_generate)
  cmake_parse_arguments(ARG "" "LANGUAGE;OUT_VAR" "PROTOS" ${ARGN})
  set(sources "")
  foreach(proto IN LISTS ARG_PROTOS)
    get_filename_component(stem "${proto}" NAME_WE)
    set(generated "${CMAKE_CURRENT_BINARY_DIR}/${stem}.pb.cc" "${CMAKE_CURRENT_BINARY_DIR}/${stem}.pb.h")
    add_custom_command(
      OUTPUT ${generated}
      COMMAND protobuf::protoc "--cpp_out=${CMAKE_CURRENT_BINARY_DIR}" -I "${CMAKE_CURRENT_SOURCE_DIR}" -I "${protobuf_SOURCE_DIR}/src"
              "${CMAKE_CURRENT_SOURCE_DIR}/${proto}"
      DEPENDS "${proto}" protobuf::protoc
      VERBATIM)
    list(APPEND sources ${generated})
  endforeach()
  set(${ARG_OUT_VAR} "${sources}" PARENT_SCOPE)
endfunction()

# A shared library, because its own older Protobuf must stay separate from ours (HadalDependencies.cmake).
set(SPM_ENABLE_TCMALLOC OFF)
hadal_fetch(sentencepiece https://github.com/google/sentencepiece/archive/refs/tags/v0.1.97.tar.gz
  41c3a07f315e3ac87605460c8bb8d739955bc8e7f478caec4017ef9b7d78669b)
file(STRINGS "${sentencepiece_SOURCE_DIR}/VERSION.txt" SENTENCEPIECE_VERSION)
add_library(hadal_sentencepiece INTERFACE)
target_include_directories(hadal_sentencepiece SYSTEM INTERFACE "${sentencepiece_SOURCE_DIR}/src")
target_link_libraries(hadal_sentencepiece INTERFACE sentencepiece sentencepiece_train)

if(HADAL_BUILD_TESTS)
  set(INSTALL_GTEST OFF)
  hadal_fetch(googletest https://github.com/google/googletest/archive/refs/tags/release-1.12.1.tar.gz
    81964fe578e9bd7c94dfdb09c8e4d6e6759e19967e397dbea48d1c10e45d0df2)
endif()
unset(BUILD_SHARED_LIBS)
unset(BUILD_TESTING)
unset(CMAKE_POSITION_INDEPENDENT_CODE)
