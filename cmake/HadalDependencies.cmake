# Finds every third-party package that hadal links. All are Debian 12 packages; README.md has the table. With
# HADAL_FETCH_DEPENDENCIES all except the compiler's, MPI, zlib, zstd and Expat are built from pinned sources instead (HadalFetch.cmake).
option(HADAL_FETCH_DEPENDENCIES "Build the third-party libraries from pinned sources instead of using the system's" OFF)
find_package(Threads REQUIRED)
find_package(MPI REQUIRED COMPONENTS CXX)
find_package(PkgConfig REQUIRED)
set(HADAL_LIBRARY_SUFFIXES ${CMAKE_FIND_LIBRARY_SUFFIXES})
if(SKBUILD)  # in a wheel these are static (launch/wheel)
  set(CMAKE_FIND_LIBRARY_SUFFIXES .a .so)
endif()
find_package(ZLIB REQUIRED)
find_package(EXPAT REQUIRED)
pkg_check_modules(ZSTD REQUIRED IMPORTED_TARGET libzstd)
set(CMAKE_FIND_LIBRARY_SUFFIXES ${HADAL_LIBRARY_SUFFIXES})
add_library(hadal_zstd INTERFACE)
target_link_libraries(hadal_zstd INTERFACE PkgConfig::ZSTD)
if(HADAL_FETCH_DEPENDENCIES)
  include(HadalFetch)
  return()
endif()

# Debian's libsentencepiece contains its own Protobuf (3.14) and exports it. hadal therefore links Protobuf statically
# and exports nothing (HadalTargets.cmake), so that neither library calls into the other's copy.
set(Protobuf_USE_STATIC_LIBS ON)
find_package(Protobuf REQUIRED)
find_package(absl REQUIRED)
find_package(hwy REQUIRED CONFIG)
find_package(nlohmann_json REQUIRED CONFIG)
find_package(CLI11 REQUIRED CONFIG)

# SentencePiece has a pkg-config file but no CMake package.
pkg_check_modules(SENTENCEPIECE REQUIRED IMPORTED_TARGET sentencepiece)
add_library(hadal_sentencepiece INTERFACE)
target_link_libraries(hadal_sentencepiece INTERFACE PkgConfig::SENTENCEPIECE)

if(HADAL_BUILD_TESTS)
  find_package(GTest REQUIRED CONFIG)
endif()
