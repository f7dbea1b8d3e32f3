# Enables CUDA if nvcc 12.2 or later is found: sets HADAL_CUDA_FOUND and defines hadal_cuda_flags. Required only with
# HADAL_CUDA=ON. An older nvcc counts as absent.
set(HADAL_CUDA AUTO CACHE STRING "Build the CUDA kernels: AUTO (where nvcc 12.2 or later is found), ON or OFF")
set_property(CACHE HADAL_CUDA PROPERTY STRINGS AUTO ON OFF)
set(HADAL_CUDA_FOUND OFF)

# Sets REASON to the reason why CUDA is not available, or to "".
macro(hadal_look_for_cuda REASON)
  set(${REASON} "")
  find_program(HADAL_NVCC nvcc HINTS ENV CUDA_PATH ENV CUDA_HOME PATHS /usr/local/cuda PATH_SUFFIXES bin)
  if(NOT HADAL_NVCC)
    set(${REASON} "no nvcc in PATH, CUDA_PATH, CUDA_HOME or /usr/local/cuda")
  else()
    execute_process(COMMAND "${HADAL_NVCC}" --version OUTPUT_VARIABLE HADAL_NVCC_OUTPUT ERROR_QUIET)
    string(REGEX MATCH "release ([0-9]+\\.[0-9]+)" HADAL_NVCC_OUTPUT "${HADAL_NVCC_OUTPUT}")
    if(NOT CMAKE_MATCH_1)
      set(${REASON} "${HADAL_NVCC} does not say its version")
    elseif(CMAKE_MATCH_1 VERSION_LESS 12.2)
      set(${REASON} "${HADAL_NVCC} is ${CMAKE_MATCH_1}; C++20 kernels need 12.2 or later")
    endif()
  endif()
  if("${${REASON}}" STREQUAL "")
    set(CMAKE_CUDA_COMPILER "${HADAL_NVCC}")
    if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
      set(CMAKE_CUDA_ARCHITECTURES "80-real;90-real;90-virtual")  # A100, H100 and H200, PTX for later GPUs
    endif()
    include(CheckLanguage)
    check_language(CUDA)  # do not fail if nvcc cannot use this C++ compiler
    if(NOT CMAKE_CUDA_COMPILER)
      set(${REASON} "${HADAL_NVCC} does not work with ${CMAKE_CXX_COMPILER}; its log is CMakeFiles/CMakeError.log")
    endif()
  endif()
endmacro()

if(HADAL_CUDA)  # OFF is the only false value
  hadal_look_for_cuda(HADAL_NO_CUDA)
  if(HADAL_NO_CUDA STREQUAL "")
    set(HADAL_CUDA_FOUND ON)
  elseif(HADAL_CUDA STREQUAL "AUTO")
    message(STATUS "CUDA kernels: not built (${HADAL_NO_CUDA})")
  else()
    message(FATAL_ERROR "HADAL_CUDA=ON, but ${HADAL_NO_CUDA}. Name the compiler with -DHADAL_NVCC=…/nvcc.")
  endif()
endif()

if(HADAL_CUDA_FOUND)
  enable_language(CUDA)
  find_package(CUDAToolkit REQUIRED)  # CUDA::cudart_static: a program starts on a machine without driver or toolkit
  message(STATUS "CUDA kernels: nvcc ${CMAKE_CUDA_COMPILER_VERSION} for ${CMAKE_CUDA_ARCHITECTURES}")
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  set(CMAKE_CUDA_EXTENSIONS OFF)
  # CMake 3.25 does not know the C++20 flag of nvcc 12 and later.
  foreach(KIND STANDARD EXTENSION)
    if(NOT CMAKE_CUDA20_${KIND}_COMPILE_OPTION)
      set(CMAKE_CUDA20_${KIND}_COMPILE_OPTION "-std=c++20")
    endif()
  endforeach()

  # The same rules as hadal_build_flags: warnings, no implicit contraction, no exported symbols. -lineinfo: sanitizers
  # and profilers print source lines; it changes no instruction.
  add_library(hadal_cuda_flags INTERFACE)
  target_include_directories(hadal_cuda_flags INTERFACE "${PROJECT_SOURCE_DIR}")
  # Abseil's headers, which those of the kernels' arguments include (kernels/<op>.h, runtime/device.h).
  target_include_directories(hadal_cuda_flags SYSTEM INTERFACE $<TARGET_PROPERTY:absl::statusor,INTERFACE_INCLUDE_DIRECTORIES>)
  target_compile_options(hadal_cuda_flags INTERFACE -fmad=false -lineinfo
    "SHELL:-Xcompiler=-Wall,-Wextra,-Wno-unused-parameter,-Wno-missing-field-initializers,-ffp-contract=off,-fvisibility=hidden")
  if(HADAL_WARNINGS_AS_ERRORS)
    target_compile_options(hadal_cuda_flags INTERFACE "SHELL:-Werror all-warnings")
  endif()
endif()
