# SPDX-License-Identifier: Apache-2.0
# Kolo's options, and the settings that apply only if Kolo is not part of another project.

# kolo_choice(<option> <default> <help>): an option that is AUTO, ON or OFF.
#   AUTO: parts that lack a package are left out, and a line of the output says so.
#   ON: a missing package is an error.
function(kolo_choice option default help)
  set(${option} "${default}" CACHE STRING "${help}: AUTO (as far as its packages are found), ON or OFF")
  set_property(CACHE ${option} PROPERTY STRINGS AUTO ON OFF)
  # CMake's other words for ON and OFF are accepted too.
  string(TOUPPER "${${option}}" value)
  if(value MATCHES "^(1|TRUE|YES|Y)$")
    set(value ON)
  elseif(value MATCHES "^(0|FALSE|NO|N)$")
    set(value OFF)
  endif()
  if(value MATCHES "^(AUTO|ON|OFF)$" AND NOT value STREQUAL "${${option}}")
    set(${option} ${value})
    set(${option} ${value} PARENT_SCOPE)
  endif()
  if(NOT ${option} MATCHES "^(AUTO|ON|OFF)$")
    message(FATAL_ERROR "${option} is '${${option}}'; it must be AUTO, ON or OFF")
  endif()
endfunction()

# kolo_leave_out(<option> <part> <missing> <Debian packages>): reports that <part>, which <option>
# controls, is not built because <missing> was not found.
function(kolo_leave_out option part missing packages)
  set(reason "${missing} was not found (on Debian: apt install ${packages})")
  if(${option} STREQUAL "ON")
    message(FATAL_ERROR "${option} is ON, but ${part} cannot be built: ${reason}")
  endif()
  message(STATUS "Kolo: without ${part}: ${reason}")
endfunction()

# A project that adds Kolo as a subdirectory needs only the library.
if(PROJECT_IS_TOP_LEVEL)
  set(kolo_build_default AUTO)
else()
  set(kolo_build_default OFF)
endif()
kolo_choice(KOLO_BUILD_TESTS ${kolo_build_default} "Build the tests")
kolo_choice(KOLO_BUILD_TOOLS ${kolo_build_default} "Build the programs that are installed: kolorun, kolo-diagnose, kolo-checkpoint and kolo-perf")
kolo_choice(KOLO_BUILD_EXAMPLES ${kolo_build_default} "Build the examples")
kolo_choice(KOLO_BUILD_BENCHMARKS ${kolo_build_default} "Build the benchmarks")
kolo_choice(KOLO_WITH_MPI AUTO "Support ranks that mpirun starts, and data over MPI")
kolo_choice(KOLO_WITH_TORCH AUTO "Build kolo::torch, which needs LibTorch")
kolo_choice(KOLO_WITH_CUDA AUTO "Support tensors on GPUs, which needs CUDA")
kolo_choice(KOLO_WITH_NCCL AUTO "Support NCCL between GPUs")
kolo_choice(KOLO_WITH_FABRIC AUTO "Support RDMA networks without MPI, which needs libfabric")
kolo_choice(KOLO_WITH_PYTHON ${kolo_build_default} "Build the extension module of the Python package, which needs nanobind")
kolo_choice(KOLO_WITH_FORTRAN ${kolo_build_default} "Build the examples and tests in Fortran, which need its compiler")

option(KOLO_INSTALL "Make install rules" ${PROJECT_IS_TOP_LEVEL})
option(KOLO_PACKAGES "Let cpack make Debian packages; needs BUILD_SHARED_LIBS" OFF)
set(KOLO_MAINTAINER "Kolo developers <kolo@example.org>" CACHE STRING
  "Name and address of who made the Debian packages")
# A project that depends on Kolo rarely changes its files, so the time of a full build matters most
# there.
set(kolo_unity_default ON)
if(PROJECT_IS_TOP_LEVEL)
  set(kolo_unity_default OFF)
endif()
option(KOLO_UNITY "Compile several files of a target together, which makes a build from scratch faster"
  ${kolo_unity_default})
set(KOLO_TEST_FLAGS "" CACHE STRING
  "Compiler flags for examples, benchmarks and tests; a list. They come after all others")
option(KOLO_WARNINGS_AS_ERRORS "Treat compiler warnings as errors" OFF)

set(KOLO_SANITIZE "" CACHE STRING "Build with a sanitizer: empty, address or thread")
set_property(CACHE KOLO_SANITIZE PROPERTY STRINGS "" address thread)
if(NOT KOLO_SANITIZE MATCHES "^(address|thread)?$")
  message(FATAL_ERROR "KOLO_SANITIZE is '${KOLO_SANITIZE}'; it must be empty, address or thread")
endif()

option(KOLO_BUILD_FUZZERS "Build fuzz_program, and instrument all code for libFuzzer (clang only)" OFF)
if(KOLO_BUILD_FUZZERS AND NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  message(FATAL_ERROR "KOLO_BUILD_FUZZERS needs clang: libFuzzer is a part of it")
endif()

if(PROJECT_IS_TOP_LEVEL)
  set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
  set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
  set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")
  set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")
  if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "Debug, Release, RelWithDebInfo or MinSizeRel" FORCE)
  endif()
  find_program(KOLO_CCACHE ccache)
  mark_as_advanced(KOLO_CCACHE)
  if(KOLO_CCACHE AND NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
    set(CMAKE_CXX_COMPILER_LAUNCHER "${KOLO_CCACHE}")
  endif()
endif()
