# SPDX-License-Identifier: Apache-2.0
# Finds the packages that Kolo is built from. Nothing is downloaded. Minimum versions are the oldest
# that Kolo is tested with, those of Debian 12; for zlib it is the first version with crc32_z().

# Without MPI, kolorun, torchrun or srun starts the ranks, and sockets carry data between hosts.
set(KOLO_HAVE_MPI OFF)
set(kolo_file_sets HEADERS)  # file sets of installed headers
if(KOLO_WITH_MPI STREQUAL "ON")
  find_package(MPI 3.1 REQUIRED COMPONENTS CXX)
elseif(KOLO_WITH_MPI STREQUAL "AUTO")
  find_package(MPI 3.1 QUIET COMPONENTS CXX)
endif()
if(NOT KOLO_WITH_MPI STREQUAL "OFF" AND MPI_CXX_FOUND)
  set(KOLO_HAVE_MPI ON)
  set(kolo_mpi_libraries MPI::MPI_CXX)
  set(kolo_mpi_definitions OMPI_SKIP_MPICXX)
  list(APPEND kolo_file_sets mpi_headers)
  message(STATUS "Kolo: with MPI (${MPIEXEC_EXECUTABLE})")
elseif(KOLO_WITH_MPI STREQUAL "OFF")
  message(STATUS "Kolo: without MPI (KOLO_WITH_MPI=OFF)")
else()
  kolo_leave_out(KOLO_WITH_MPI "MPI" "an MPI 3.1" libopenmpi-dev)
endif()
find_package(Threads REQUIRED)
find_package(fmt 9.1 REQUIRED)
find_package(spdlog 1.10 REQUIRED)
find_package(hwy 1.0.3 REQUIRED)
# base/vectors/instruction_set.cpp loads a shared library of Highway itself, and needs only its headers here.
get_target_property(kolo_highway_type hwy::hwy TYPE)
if(kolo_highway_type STREQUAL "SHARED_LIBRARY")
  set(KOLO_LINKS_HIGHWAY OFF)
else()
  set(KOLO_LINKS_HIGHWAY ON)
endif()
find_package(ZLIB 1.2.9 REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(KOLO_HWLOC REQUIRED IMPORTED_TARGET hwloc>=2.9)
pkg_check_modules(KOLO_SODIUM REQUIRED IMPORTED_TARGET libsodium>=1.0.18)
find_package(nlohmann_json 3.11 REQUIRED)  # headers only

# Packages that the library itself does not need. Parts that lack one are left out: see
# kolo_leave_out().
if(KOLO_BUILD_TOOLS OR KOLO_BUILD_EXAMPLES OR KOLO_BUILD_TESTS)
  find_package(CLI11 2.1 QUIET)
  find_path(KOLO_PROTOZERO_INCLUDE_DIR protozero/pbf_message.hpp) # headers only, without a package
  mark_as_advanced(KOLO_PROTOZERO_INCLUDE_DIR)
endif()
if(KOLO_BUILD_TESTS)
  find_package(GTest 1.12 QUIET)
endif()

# FlatBuffers is used by its headers and its compiler only. It is not linked, so an installed Kolo
# does not need it.
find_path(KOLO_FLATBUFFERS_INCLUDE_DIR flatbuffers/flatbuffers.h)
find_program(KOLO_FLATC flatc)
mark_as_advanced(KOLO_FLATBUFFERS_INCLUDE_DIR KOLO_FLATC)
if(NOT KOLO_FLATBUFFERS_INCLUDE_DIR OR NOT KOLO_FLATC)
  message(FATAL_ERROR "FlatBuffers was not found (flatbuffers/flatbuffers.h and flatc). "
    "On Debian: apt install libflatbuffers-dev flatbuffers-compiler")
endif()

# libfabric is used by its headers only: the library is loaded when a session needs it.
set(KOLO_HAVE_FABRIC OFF)
if(NOT KOLO_WITH_FABRIC STREQUAL "OFF")
  find_path(KOLO_FABRIC_INCLUDE_DIR rdma/fabric.h)
  mark_as_advanced(KOLO_FABRIC_INCLUDE_DIR)
  set(version 0)
  if(KOLO_FABRIC_INCLUDE_DIR)
    file(STRINGS "${KOLO_FABRIC_INCLUDE_DIR}/rdma/fabric.h" lines REGEX "^#define FI_M(AJOR|INOR)_VERSION ")
    string(REGEX REPLACE "[^0-9;]" "" version "${lines}")
    list(JOIN version "." version)
  endif()
  if(version VERSION_GREATER_EQUAL 1.17)
    set(KOLO_HAVE_FABRIC ON)
    message(STATUS "Kolo: with libfabric (headers of ${version})")
  else()
    kolo_leave_out(KOLO_WITH_FABRIC "RDMA networks without MPI" "libfabric 1.17" libfabric-dev)
  endif()
endif()

# The Python package's extension module: ./dev test installs nanobind for the Python in build/python.
# An interpreter cannot load a library that a sanitizer has instrumented.
set(KOLO_HAVE_PYTHON OFF)
if(NOT KOLO_WITH_PYTHON STREQUAL "OFF" AND NOT KOLO_SANITIZE AND NOT KOLO_BUILD_FUZZERS)
  if(NOT Python_EXECUTABLE AND EXISTS "${PROJECT_SOURCE_DIR}/build/python/bin/python3")
    set(Python_EXECUTABLE "${PROJECT_SOURCE_DIR}/build/python/bin/python3")
  endif()
  find_package(Python 3.10 QUIET COMPONENTS Interpreter Development.Module)
  if(Python_FOUND)
    execute_process(COMMAND "${Python_EXECUTABLE}" -B -m nanobind --cmake_dir
      OUTPUT_VARIABLE KOLO_NANOBIND_DIR OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    if(KOLO_NANOBIND_DIR)
      find_package(nanobind CONFIG QUIET PATHS "${KOLO_NANOBIND_DIR}" NO_DEFAULT_PATH)
    endif()
  endif()
  if(nanobind_FOUND)
    set(KOLO_HAVE_PYTHON ON)
    message(STATUS "Kolo: with Python ${Python_VERSION} (${Python_EXECUTABLE})")
  else()
    kolo_leave_out(KOLO_WITH_PYTHON "the Python package" "Python's headers or its package nanobind" python3-dev)
  endif()
endif()

# LibTorch's package appends to CMAKE_CXX_FLAGS and sets the language standard: the block() contains it.
set(KOLO_HAVE_TORCH OFF)
if(NOT KOLO_WITH_TORCH STREQUAL "OFF")
  block(PROPAGATE KOLO_HAVE_TORCH KOLO_TORCH_VERSION KOLO_TORCH_FLAGS)
    if(KOLO_WITH_TORCH STREQUAL "ON")
      find_package(Torch REQUIRED)
    else()
      find_package(Torch QUIET)
    endif()
    set(KOLO_HAVE_TORCH ${Torch_FOUND})
    set(KOLO_TORCH_VERSION "${Torch_VERSION}")
    set(KOLO_TORCH_FLAGS "${TORCH_CXX_FLAGS}")
  endblock()
endif()
# The version is checked here, because the package of PyTorch's wheel does not accept a version in
# find_package().
if(KOLO_HAVE_TORCH AND KOLO_TORCH_VERSION VERSION_LESS 1.13)
  set(KOLO_HAVE_TORCH OFF)
  kolo_leave_out(KOLO_WITH_TORCH "LibTorch" "LibTorch 1.13 or newer" libtorch-dev)
elseif(KOLO_HAVE_TORCH)
  message(STATUS "Kolo: with LibTorch ${KOLO_TORCH_VERSION} (${Torch_DIR})")
elseif(KOLO_WITH_TORCH STREQUAL "OFF")
  message(STATUS "Kolo: without LibTorch (KOLO_WITH_TORCH=OFF)")
else()
  message(STATUS "Kolo: without LibTorch, it was not found (set Torch_DIR or CMAKE_PREFIX_PATH)")
endif()

# The modules for Fortran are sources that programs compile: only examples and tests need its compiler.
set(KOLO_HAVE_FORTRAN OFF)
if(NOT KOLO_WITH_FORTRAN STREQUAL "OFF" AND (KOLO_BUILD_EXAMPLES OR KOLO_BUILD_TESTS) AND NOT KOLO_SANITIZE AND
    NOT KOLO_BUILD_FUZZERS)
  include(CheckLanguage)
  check_language(Fortran)
  if(CMAKE_Fortran_COMPILER)
    enable_language(Fortran)
    set(KOLO_HAVE_FORTRAN ON)
    message(STATUS "Kolo: with Fortran (${CMAKE_Fortran_COMPILER})")
  else()
    kolo_leave_out(KOLO_WITH_FORTRAN "the examples and tests in Fortran" "a compiler for Fortran" gfortran)
  endif()
endif()
