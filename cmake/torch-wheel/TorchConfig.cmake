# SPDX-License-Identifier: Apache-2.0
# LibTorch from PyPI's wheel. Set KOLO_TORCH_WHEEL to the wheel's folder `torch`.
#
# The wheel's own package requires a complete CUDA toolkit. This one needs only libtorch_cpu and libc10,
# which load two small CUDA libraries from folders next to the wheel (../nvidia/cu13/lib for CUDA 13: see
# `./dev torch2`).
# For GPUs it adds libc10_cuda and libtorch_cuda if the wheel has them and Kolo has found CUDA;
# these load their own dependencies from folders next to the wheel.

set(KOLO_TORCH_WHEEL "${KOLO_TORCH_WHEEL}" CACHE PATH "The folder `torch` of an unpacked PyTorch wheel")

find_path(KOLO_TORCH_WHEEL_INCLUDE_DIR torch/csrc/api/include/torch/torch.h
  PATHS "${KOLO_TORCH_WHEEL}/include" NO_DEFAULT_PATH)
find_library(KOLO_TORCH_WHEEL_CPU_LIBRARY torch_cpu PATHS "${KOLO_TORCH_WHEEL}/lib" NO_DEFAULT_PATH)
find_library(KOLO_TORCH_WHEEL_C10_LIBRARY c10 PATHS "${KOLO_TORCH_WHEEL}/lib" NO_DEFAULT_PATH)
find_library(KOLO_TORCH_WHEEL_C10_CUDA_LIBRARY c10_cuda
  PATHS "${KOLO_TORCH_WHEEL}/lib" NO_DEFAULT_PATH)
find_library(KOLO_TORCH_WHEEL_CUDA_LIBRARY torch_cuda
  PATHS "${KOLO_TORCH_WHEEL}/lib" NO_DEFAULT_PATH)
mark_as_advanced(KOLO_TORCH_WHEEL_INCLUDE_DIR KOLO_TORCH_WHEEL_CPU_LIBRARY
  KOLO_TORCH_WHEEL_C10_LIBRARY KOLO_TORCH_WHEEL_C10_CUDA_LIBRARY KOLO_TORCH_WHEEL_CUDA_LIBRARY)

if(EXISTS "${KOLO_TORCH_WHEEL}/version.py")
  file(STRINGS "${KOLO_TORCH_WHEEL}/version.py" Torch_VERSION REGEX "^__version__")
  string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" Torch_VERSION "${Torch_VERSION}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Torch
  REQUIRED_VARS KOLO_TORCH_WHEEL_CPU_LIBRARY KOLO_TORCH_WHEEL_C10_LIBRARY
    KOLO_TORCH_WHEEL_INCLUDE_DIR
  VERSION_VAR Torch_VERSION
  REASON_FAILURE_MESSAGE "KOLO_TORCH_WHEEL is '${KOLO_TORCH_WHEEL}'")

if(Torch_FOUND AND NOT TARGET torch)
  find_package(Threads REQUIRED)
  add_library(c10 SHARED IMPORTED)
  set_target_properties(c10 PROPERTIES
    IMPORTED_LOCATION "${KOLO_TORCH_WHEEL_C10_LIBRARY}")
  # The target names are those of LibTorch's own package.
  add_library(torch_cpu SHARED IMPORTED)
  add_library(torch INTERFACE IMPORTED)
  set_property(TARGET torch PROPERTY INTERFACE_LINK_LIBRARIES torch_cpu)
  set_target_properties(torch_cpu PROPERTIES
    IMPORTED_LOCATION "${KOLO_TORCH_WHEEL_CPU_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES
      "${KOLO_TORCH_WHEEL_INCLUDE_DIR};${KOLO_TORCH_WHEEL_INCLUDE_DIR}/torch/csrc/api/include"
    INTERFACE_LINK_LIBRARIES "c10;Threads::Threads")
  # The wheel has headers of fmt, which come before the system's and differ in version: a program
  # that uses both must not link the system's library for them.
  if(EXISTS "${KOLO_TORCH_WHEEL_INCLUDE_DIR}/fmt")
    set_property(TARGET torch_cpu APPEND PROPERTY INTERFACE_COMPILE_DEFINITIONS FMT_HEADER_ONLY=1)
  endif()
  if(KOLO_HAVE_CUDA AND KOLO_TORCH_WHEEL_C10_CUDA_LIBRARY)
    add_library(c10_cuda SHARED IMPORTED)
    set_target_properties(c10_cuda PROPERTIES
      IMPORTED_LOCATION "${KOLO_TORCH_WHEEL_C10_CUDA_LIBRARY}"
      INTERFACE_LINK_OPTIONS "LINKER:--allow-shlib-undefined"
      INTERFACE_LINK_LIBRARIES "c10")
  endif()
  # libtorch_cuda is linked although no symbol of it is used: loading it registers GPUs with
  # LibTorch.
  if(TARGET c10_cuda AND KOLO_TORCH_WHEEL_CUDA_LIBRARY)
    set_property(TARGET torch APPEND PROPERTY INTERFACE_LINK_LIBRARIES
      "-Wl,--no-as-needed,${KOLO_TORCH_WHEEL_CUDA_LIBRARY},--as-needed" c10_cuda)
  endif()
endif()
set(TORCH_LIBRARIES torch)
