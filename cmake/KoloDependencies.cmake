# Finds what Kolo is built from. Nothing is downloaded.

find_package(MPI REQUIRED COMPONENTS CXX)
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(hwy REQUIRED)
find_package(ZLIB REQUIRED)

# Headers and compiler only: FlatBuffers is not linked, so that an installed Kolo does not need it.
find_path(KOLO_FLATBUFFERS_INCLUDE_DIR flatbuffers/flatbuffers.h)
find_program(KOLO_FLATC flatc)
mark_as_advanced(KOLO_FLATBUFFERS_INCLUDE_DIR KOLO_FLATC)
if(NOT KOLO_FLATBUFFERS_INCLUDE_DIR OR NOT KOLO_FLATC)
  message(FATAL_ERROR "FlatBuffers was not found (flatbuffers/flatbuffers.h and flatc). "
    "On Debian: apt install libflatbuffers-dev flatbuffers-compiler")
endif()

# LibTorch's package appends to CMAKE_CXX_FLAGS and sets the language standard: keep that in here.
set(KOLO_HAVE_TORCH OFF)
if(NOT KOLO_WITH_TORCH STREQUAL "OFF")
  block(PROPAGATE KOLO_HAVE_TORCH KOLO_TORCH_VERSION)
    if(KOLO_WITH_TORCH STREQUAL "ON")
      find_package(Torch REQUIRED)
    else()
      find_package(Torch QUIET)
    endif()
    set(KOLO_HAVE_TORCH ${Torch_FOUND})
    set(KOLO_TORCH_VERSION "${Torch_VERSION}")
  endblock()
endif()
if(KOLO_HAVE_TORCH)
  message(STATUS "Kolo: with LibTorch ${KOLO_TORCH_VERSION} (${Torch_DIR})")
elseif(KOLO_WITH_TORCH STREQUAL "OFF")
  message(STATUS "Kolo: without LibTorch (KOLO_WITH_TORCH=OFF)")
else()
  message(STATUS "Kolo: without LibTorch, it was not found (set Torch_DIR or CMAKE_PREFIX_PATH)")
endif()
