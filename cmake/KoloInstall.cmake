# SPDX-License-Identifier: Apache-2.0
# The package: find_package(kolo) gives kolo::kolo and, where it was built, kolo::torch.
include(CMakePackageConfigHelpers)

set(kolo_package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/kolo")

set(kolo_installed "")
if(BUILD_SHARED_LIBS)
  set(kolo_installed _shared)
endif()
install(TARGETS kolo${kolo_installed} EXPORT koloTargets
  FILE_SET HEADERS DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
  FILE_SET mpi_headers DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
  INCLUDES DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
install(EXPORT koloTargets NAMESPACE kolo:: DESTINATION "${kolo_package_dir}")

# In a file of its own, which is read only where LibTorch is found too.
if(KOLO_HAVE_TORCH)
  install(TARGETS kolo_torch${kolo_installed} EXPORT koloTorchTargets
    FILE_SET HEADERS DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
    INCLUDES DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
  install(EXPORT koloTorchTargets NAMESPACE kolo:: DESTINATION "${kolo_package_dir}")
endif()

if(TARGET kolo-perf)
  install(TARGETS kolo-perf kolo-diagnose kolorun RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
endif()

# A static library asks its users to link what it uses.
set(KOLO_IS_STATIC ON)
if(BUILD_SHARED_LIBS)
  set(KOLO_IS_STATIC OFF)
endif()
configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/koloConfig.cmake.in"
  "${PROJECT_BINARY_DIR}/koloConfig.cmake"
  INSTALL_DESTINATION "${kolo_package_dir}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/koloConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES
  "${PROJECT_BINARY_DIR}/koloConfig.cmake" "${PROJECT_BINARY_DIR}/koloConfigVersion.cmake"
  DESTINATION "${kolo_package_dir}")
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DOCDIR}")
