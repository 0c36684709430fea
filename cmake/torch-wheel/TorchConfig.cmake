# LibTorch out of PyPI's wheel, for the CPU: give KOLO_TORCH_WHEEL, the wheel's folder `torch`.
#
# The wheel's own package asks for a whole CUDA toolkit. This one takes libtorch_cpu and libc10 only,
# which need no more of CUDA than the two small run-time libraries that lie beside the wheel
# (../nvidia/cu13/lib: see `./dev torch2`).

set(KOLO_TORCH_WHEEL "${KOLO_TORCH_WHEEL}" CACHE PATH "The folder `torch` of an unpacked PyTorch wheel")

find_path(KOLO_TORCH_WHEEL_INCLUDE_DIR torch/csrc/api/include/torch/torch.h
  PATHS "${KOLO_TORCH_WHEEL}/include" NO_DEFAULT_PATH)
find_library(KOLO_TORCH_WHEEL_CPU_LIBRARY torch_cpu PATHS "${KOLO_TORCH_WHEEL}/lib" NO_DEFAULT_PATH)
find_library(KOLO_TORCH_WHEEL_C10_LIBRARY c10 PATHS "${KOLO_TORCH_WHEEL}/lib" NO_DEFAULT_PATH)
mark_as_advanced(KOLO_TORCH_WHEEL_INCLUDE_DIR KOLO_TORCH_WHEEL_CPU_LIBRARY
  KOLO_TORCH_WHEEL_C10_LIBRARY)

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
  add_library(torch SHARED IMPORTED)
  set_target_properties(torch PROPERTIES
    IMPORTED_LOCATION "${KOLO_TORCH_WHEEL_CPU_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES
      "${KOLO_TORCH_WHEEL_INCLUDE_DIR};${KOLO_TORCH_WHEEL_INCLUDE_DIR}/torch/csrc/api/include"
    INTERFACE_LINK_LIBRARIES "c10;Threads::Threads")
endif()
set(TORCH_LIBRARIES torch)
