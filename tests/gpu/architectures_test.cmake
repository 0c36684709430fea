# SPDX-License-Identifier: Apache-2.0
# The default architectures have code for every GPU that a version of CUDA can compile for.
# Usage: cmake -P architectures_test.cmake
cmake_minimum_required(VERSION 3.25)
include("${CMAKE_CURRENT_LIST_DIR}/../../cmake/KoloGpuArchitectures.cmake")

# True if a GPU runs what is compiled: machine code of its major version and no later minor one, or
# PTX of its version or an earlier one.
function(covers architectures gpu result)
  set(${result} FALSE PARENT_SCOPE)
  foreach(entry IN LISTS architectures)
    string(REGEX MATCH "^[0-9]+" number "${entry}")
    math(EXPR major "${number} / 10")
    math(EXPR gpu_major "${gpu} / 10")
    if(number LESS_EQUAL gpu AND (major EQUAL gpu_major OR NOT entry MATCHES "-real$"))
      set(${result} TRUE PARENT_SCOPE)
    endif()
  endforeach()
endfunction()

set(gpus 70 75 80 86 89 90 100 120)  # V100, T4, A100, RTX 3090, L4, H100, B200, RTX 5090
foreach(version 12.5 12.6.20 12.8 12.9.1 13.0.88 13.2)
  kolo_default_gpu_architectures(${version} architectures)
  foreach(gpu IN LISTS gpus)
    covers("${architectures}" ${gpu} is_covered)
    if(gpu EQUAL 70 AND version VERSION_GREATER_EQUAL 13)
      if("70-real" IN_LIST architectures)
        message(FATAL_ERROR "CUDA ${version} cannot compile for Volta: ${architectures}")
      endif()
    elseif(NOT is_covered)
      message(FATAL_ERROR "with CUDA ${version}, no code for sm_${gpu}: ${architectures}")
    endif()
  endforeach()
  if(version VERSION_LESS 12.8 AND architectures MATCHES "1[0-9][0-9]")
    message(FATAL_ERROR "CUDA ${version} cannot compile for Blackwell: ${architectures}")
  endif()
  message(STATUS "CUDA ${version}: ${architectures}")
endforeach()
