# One function a kind of target, so that every room of the house is built the same way.

add_library(hadal_build_flags INTERFACE)
target_include_directories(hadal_build_flags INTERFACE "${PROJECT_SOURCE_DIR}")
target_compile_options(hadal_build_flags INTERFACE -Wall -Wextra -Wno-unused-parameter -fno-math-errno)
# Kernels take structs with named fields; the fields that a call leaves out have defaults on purpose.
target_compile_options(hadal_build_flags INTERFACE -Wno-missing-field-initializers)
# A fused multiply-add in one build and not in another would break bit-identity between them: contraction is written
# out where it is wanted (Highway's MulAdd), never left to the compiler.
target_compile_options(hadal_build_flags INTERFACE -ffp-contract=off)
if(HADAL_WARNINGS_AS_ERRORS)
  target_compile_options(hadal_build_flags INTERFACE -Werror)
endif()
if(HADAL_SANITIZE)
  target_compile_options(hadal_build_flags INTERFACE -fsanitize=${HADAL_SANITIZE} -fno-omit-frame-pointer -g)
  target_link_options(hadal_build_flags INTERFACE -fsanitize=${HADAL_SANITIZE})
endif()

# hadal_library(NAME SOURCES file... [DEPENDS target...])
function(hadal_library NAME)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  add_library(${NAME} STATIC ${ARG_SOURCES})
  target_link_libraries(${NAME} PUBLIC hadal_build_flags ${ARG_DEPENDS})
endfunction()

# hadal_test(STEM [DEPENDS target...] [LABELS label...] [TIMEOUT seconds])
# Builds STEM.cc of the current folder into one GoogleTest program and registers it with CTest as one test.
function(hadal_test STEM)
  cmake_parse_arguments(ARG "" "TIMEOUT" "DEPENDS;LABELS" ${ARGN})
  add_executable(${STEM} ${STEM}.cc)
  target_link_libraries(${STEM} PRIVATE hadal_build_flags hadal_test_support ${ARG_DEPENDS} GTest::gmock GTest::gtest_main)
  add_test(NAME ${STEM} COMMAND ${STEM})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  set_tests_properties(${STEM} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}")
endfunction()
