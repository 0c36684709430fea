# SPDX-License-Identifier: Apache-2.0
# Generates kolo.pc and kolo-torch.pc. For static libraries, `pkg-config --static` lists their
# dependencies.

# kolo_pkg_config(<name> <component>): installs cmake/<name>.pc.in, filled in.
function(kolo_pkg_config name component)
  configure_file("${PROJECT_SOURCE_DIR}/cmake/${name}.pc.in" "${PROJECT_BINARY_DIR}/${name}.pc.1"
    @ONLY)
  file(GENERATE OUTPUT "${PROJECT_BINARY_DIR}/${name}.pc" INPUT "${PROJECT_BINARY_DIR}/${name}.pc.1")
  install(FILES "${PROJECT_BINARY_DIR}/${name}.pc"
    DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig" COMPONENT ${component})
endfunction()

# The prefix is relative to the .pc file, so that an installation can be moved, unless a folder is
# an absolute path.
set(kolo_pc_prefix "${CMAKE_INSTALL_PREFIX}")
if(NOT IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}")
  file(RELATIVE_PATH kolo_pc_prefix "/prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/prefix")
  string(PREPEND kolo_pc_prefix "\${pcfiledir}/")
endif()
foreach(kind IN ITEMS INCLUDE LIB)
  set(kolo_pc_${kind}DIR "${CMAKE_INSTALL_${kind}DIR}")
  if(NOT IS_ABSOLUTE "${kolo_pc_${kind}DIR}")
    string(PREPEND kolo_pc_${kind}DIR "\${prefix}/")
  endif()
endforeach()

# A shared library has already linked its dependencies.
if(NOT BUILD_SHARED_LIBS)
  set(kolo_pc_libraries "")
  if(KOLO_HAVE_MPI)
    list(JOIN MPI_CXX_LIBRARIES " " kolo_pc_libraries)
  endif()
  # hwloc is named by its file, because its own list for static libraries names packages that
  # Debian's hwloc does not need.
  list(JOIN KOLO_HWLOC_LINK_LIBRARIES " " hwloc)
  string(APPEND kolo_pc_libraries " ${hwloc} -lpthread")
  if(KOLO_HAVE_CUDA)
    string(APPEND kolo_pc_libraries " $<TARGET_FILE:CUDA::cudart_static> -ldl -lrt")
  endif()
  set(kolo_pc_packages "spdlog, fmt, zlib, libsodium")
  if(KOLO_LINKS_HIGHWAY)
    string(APPEND kolo_pc_packages ", libhwy")
  else()
    string(APPEND kolo_pc_libraries " -ldl")
  endif()
endif()
kolo_pkg_config(kolo kolo_development)

# LibTorch has no pkg-config file.
if(KOLO_HAVE_TORCH)
  # torch-wheel/TorchConfig.cmake does not use libtorch.so.
  get_target_property(kolo_pc_torch torch TYPE)
  if(kolo_pc_torch STREQUAL "INTERFACE_LIBRARY")
    set(kolo_pc_torch "")
  else()
    set(kolo_pc_torch "-ltorch ")
  endif()
  kolo_pkg_config(kolo-torch kolo_torch_development)
endif()
