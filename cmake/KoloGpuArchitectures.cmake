# SPDX-License-Identifier: Apache-2.0
# kolo_default_gpu_architectures(<CUDA version> <variable>): GPUs from Volta, if CUDA still has it,
# to Blackwell. Machine code runs on GPUs of the same major version: 80 covers Ampere and Ada. The
# last entry also gives PTX, which drivers compile for later GPUs. CUDA 13 has no Volta, CUDA before
# 12.8 no Blackwell.
function(kolo_default_gpu_architectures version variable)
  set(architectures 75-real 80-real)
  if(version VERSION_LESS 13)
    list(PREPEND architectures 70-real)
  endif()
  if(version VERSION_LESS 12.8)
    list(APPEND architectures 90)
  else()
    list(APPEND architectures 90-real 100)
  endif()
  set(${variable} "${architectures}" PARENT_SCOPE)
endfunction()
