# One function per kind of target, so that all folders are built the same way.

add_library(hadal_build_flags INTERFACE)
target_include_directories(hadal_build_flags INTERFACE "${PROJECT_SOURCE_DIR}")
target_compile_options(hadal_build_flags INTERFACE -Wall -Wextra -Wno-unused-parameter -fno-math-errno)
# Kernels take structs with named fields; omitted fields have defaults on purpose.
target_compile_options(hadal_build_flags INTERFACE -Wno-missing-field-initializers)
# A fused multiply-add in one build but not in another would break bit-identity between them. So contraction is never
# left to the compiler, but written explicitly (Highway's MulAdd).
target_compile_options(hadal_build_flags INTERFACE -ffp-contract=off)
# hadal's programs export no symbols, so that a shared library with its own copy of one of our dependencies uses that
# copy.
target_compile_options(hadal_build_flags INTERFACE -fvisibility=hidden -fvisibility-inlines-hidden)
if(NOT HADAL_FUZZ)  # clang's AddressSanitizer is a static library whose operators new and delete must be exported
  target_link_options(hadal_build_flags INTERFACE -Wl,--exclude-libs,ALL)
endif()
if(HADAL_WARNINGS_AS_ERRORS)
  target_compile_options(hadal_build_flags INTERFACE -Werror)
endif()
if(HADAL_FUZZ)
  target_compile_options(hadal_build_flags INTERFACE -fsanitize=fuzzer-no-link,address -fno-omit-frame-pointer -g)
  target_link_options(hadal_build_flags INTERFACE -fsanitize=address)
endif()
if(HADAL_SANITIZE)
  target_compile_options(hadal_build_flags INTERFACE -fsanitize=${HADAL_SANITIZE} -fno-omit-frame-pointer -g)
  target_link_options(hadal_build_flags INTERFACE -fsanitize=${HADAL_SANITIZE})
endif()

# For sources whose compile time matters more than their run time: compiles in two thirds of -O3's time.
# (At -O1, two warnings of g++ 12 report false buffer overruns when a short std::string is moved.)
set(HADAL_QUICKLY_COMPILED -O1 -Wno-array-bounds -Wno-stringop-overflow)
# A test's own source is compiled without optimisation, in half of -O1's time; the code under test and references are libraries.
# The parameter: g++ collects its garbage rarely, which saves 2 to 17%.
add_library(hadal_test_flags INTERFACE)
target_link_libraries(hadal_test_flags INTERFACE hadal_build_flags)
target_compile_options(hadal_test_flags INTERFACE -O0 $<$<CXX_COMPILER_ID:GNU>:--param=ggc-min-heapsize=1000000>)
# lld links a test program in a third of the time that GNU ld takes.
include(CheckLinkerFlag)
check_linker_flag(CXX -fuse-ld=lld HADAL_HAS_LLD)
if(HADAL_HAS_LLD)
  target_link_options(hadal_test_flags INTERFACE -fuse-ld=lld)
endif()

# hadal_library(NAME SOURCES file... [ALONE file...] [DEPENDS target...] [COMMANDS])
# ALONE: sources that cannot be compiled together with others: a header in conflict with others', a class of their own
# with fields of an anonymous namespace's types, names that a file of the same form has too, or users that link a part of
# the library. COMMANDS: subcommands that read, plan and print, and do not compute.
function(hadal_library NAME)
  cmake_parse_arguments(ARG "COMMANDS" "" "SOURCES;ALONE;DEPENDS" ${ARGN})
  add_library(${NAME} STATIC ${ARG_SOURCES} ${ARG_ALONE})
  target_link_libraries(${NAME} PUBLIC hadal_build_flags ${ARG_DEPENDS})
  target_precompile_headers(${NAME} REUSE_FROM hadal_precompiled)
  if(ARG_COMMANDS)
    target_compile_options(${NAME} PRIVATE "$<$<CONFIG:Release>:${HADAL_QUICKLY_COMPILED}>")
  endif()
  if(HADAL_UNITY_BUILD)
    set_target_properties(${NAME} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
    set_source_files_properties(${ARG_ALONE} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    foreach(SOURCE IN LISTS ARG_SOURCES)
      cmake_path(ABSOLUTE_PATH SOURCE OUTPUT_VARIABLE FILE)
      set(TEXT "")
      if(EXISTS "${FILE}")  # else generated
        file(STRINGS "${FILE}" TEXT REGEX "foreach_target\\.h" LIMIT_COUNT 1)
      endif()
      if(TEXT)  # Highway compiles it once for each instruction set
        set_source_files_properties(${SOURCE} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
      endif()
    endforeach()
  endif()
endfunction()

# hadal_test_library(NAME [OBJECT] SOURCES file... [DEPENDS target...])
# Code that several tests share, compiled with their flags. OBJECT: contains tests, which a linker would not take from
# an archive.
function(hadal_test_library NAME)
  cmake_parse_arguments(ARG "OBJECT" "" "SOURCES;DEPENDS" ${ARGN})
  set(KIND STATIC)
  if(ARG_OBJECT)
    set(KIND OBJECT)
  endif()
  add_library(${NAME} ${KIND} ${ARG_SOURCES})
  target_link_libraries(${NAME} PRIVATE hadal_test_flags PUBLIC hadal_build_flags ${ARG_DEPENDS} GTest::gmock)
  target_precompile_headers(${NAME} REUSE_FROM hadal_test_precompiled)
endfunction()

# hadal_test([FOLDER/]STEM [DEPENDS target...] [LABELS label...] [NIGHTLY])
# Builds STEM.cc, of the current folder or one below it, into one GoogleTest program and registers it with CTest as one test, STEM.
# NIGHTLY: the cases whose names begin with Nightly are a test of their own, STEM_nightly, which tests/run leaves out without --all.
function(hadal_test SOURCE)
  cmake_parse_arguments(ARG "NIGHTLY" "" "DEPENDS;LABELS" ${ARGN})
  get_filename_component(STEM ${SOURCE} NAME)
  add_executable(${STEM} ${SOURCE}.cc)
  target_link_libraries(${STEM} PRIVATE hadal_test_flags hadal_test_support ${ARG_DEPENDS} GTest::gmock GTest::gtest_main)
  target_precompile_headers(${STEM} REUSE_FROM hadal_test_precompiled)
  set(FILTER "")
  if(ARG_NIGHTLY)
    set(FILTER "--gtest_filter=-*.Nightly*")
    add_test(NAME ${STEM}_nightly COMMAND ${STEM} "--gtest_filter=*.Nightly*")
    set_tests_properties(${STEM}_nightly PROPERTIES TIMEOUT 1500 LABELS "nightly;${ARG_LABELS}")
  endif()
  add_test(NAME ${STEM} COMMAND ${STEM} ${FILTER})
  set_tests_properties(${STEM} PROPERTIES TIMEOUT 1500 LABELS "${ARG_LABELS}")
endfunction()

# Options of mpirun in tests: allow root (containers), more ranks than cores, and ranks that share a core.
set(HADAL_MPIRUN_FLAGS --oversubscribe --bind-to none --tag-output)
set(HADAL_MPIRUN_KILLED 137)  # its exit code if a rank was killed
if(HADAL_BUILD_TESTS)
  execute_process(COMMAND ${MPIEXEC_EXECUTABLE} --version OUTPUT_VARIABLE HADAL_MPIRUN_VERSION ERROR_QUIET)
  if(HADAL_MPIRUN_VERSION MATCHES "HYDRA")  # MPICH's, which does not count cores
    set(HADAL_MPIRUN_FLAGS -bind-to none -prepend-rank)
    set(HADAL_MPIRUN_KILLED 9)
  endif()
endif()
# MPI leaks by design, so only tests without MPI check for leaks.
set(HADAL_MPIRUN_ENVIRONMENT OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_mpi_yield_when_idle=1
  ASAN_OPTIONS=detect_leaks=0)

# hadal_mpi_run(NAME COMMAND target [argument...] RANKS n [ENVIRONMENT NAME=VALUE...] [LABELS label...])
# Registers one mpirun of a program with CTest; it fails if any rank fails.
function(hadal_mpi_run NAME)
  cmake_parse_arguments(ARG "" "RANKS" "COMMAND;ENVIRONMENT;LABELS" ${ARGN})
  list(POP_FRONT ARG_COMMAND PROGRAM)
  add_test(NAME ${NAME}
    COMMAND ${MPIEXEC_EXECUTABLE} ${HADAL_MPIRUN_FLAGS} -n ${ARG_RANKS} $<TARGET_FILE:${PROGRAM}> ${ARG_COMMAND})
  set_tests_properties(${NAME} PROPERTIES TIMEOUT 1500 LABELS "mpi;${ARG_LABELS}" PROCESSORS ${ARG_RANKS}
    ENVIRONMENT "${HADAL_MPIRUN_ENVIRONMENT};HADAL_TEST_RANKS=${ARG_RANKS};${ARG_ENVIRONMENT}")
endfunction()

# hadal_mpi_test(STEM RANKS n... [DEPENDS target...] [LABELS label...])
# Builds STEM.cc into one GoogleTest program and registers STEM_n<ranks> for each number of ranks. Its own main
# starts MPI. All ranks run the same tests in the same order.
function(hadal_mpi_test STEM)
  cmake_parse_arguments(ARG "" "" "RANKS;DEPENDS;LABELS" ${ARGN})
  add_executable(${STEM} ${STEM}.cc)
  target_link_libraries(${STEM} PRIVATE hadal_test_flags hadal_test_support ${ARG_DEPENDS} GTest::gmock)
  target_precompile_headers(${STEM} REUSE_FROM hadal_test_precompiled)
  foreach(COUNT IN LISTS ARG_RANKS)
    hadal_mpi_run(${STEM}_n${COUNT} COMMAND ${STEM} RANKS ${COUNT} LABELS ${ARG_LABELS})
  endforeach()
endfunction()
