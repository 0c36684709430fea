# SPDX-License-Identifier: Apache-2.0
# The components that `cmake --install` installs: shared libraries, files to compile against, and
# programs. find_package(kolo) provides kolo::kolo and, if it was built, kolo::torch; pkg-config
# finds kolo and kolo-torch.
include(CMakePackageConfigHelpers)

set(kolo_package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/kolo")

# kolo_install(<target> <prefix of its components> <export> <file set>...)
function(kolo_install target prefix export)
  if(BUILD_SHARED_LIBS)
    string(APPEND target _shared)
  endif()
  set(file_sets "")
  foreach(file_set IN LISTS ARGN)
    list(APPEND file_sets FILE_SET ${file_set}
      DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" COMPONENT kolo_${prefix}development)
  endforeach()
  install(TARGETS ${target} EXPORT ${export}
    LIBRARY COMPONENT kolo_${prefix}runtime NAMELINK_COMPONENT kolo_${prefix}development
    ARCHIVE COMPONENT kolo_${prefix}development
    ${file_sets}
    INCLUDES DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
  install(EXPORT ${export} NAMESPACE kolo:: DESTINATION "${kolo_package_dir}"
    COMPONENT kolo_${prefix}development)
endfunction()

kolo_install(kolo "" koloTargets ${kolo_file_sets})
# The targets of kolo::torch are in a file of their own, which is read only if LibTorch is found
# too.
if(KOLO_HAVE_TORCH)
  kolo_install(kolo_torch torch_ koloTorchTargets HEADERS)
endif()

if(TARGET kolorun)
  set(kolo_programs kolorun kolo-checkpoint kolo-diagnose)
  if(TARGET kolo-perf)
    list(APPEND kolo_programs kolo-perf)
  endif()
  install(TARGETS ${kolo_programs}
    RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT kolo_tools)
  include(KoloManPages)
endif()

# Users of a static library must link its dependencies.
set(KOLO_IS_STATIC ON)
if(BUILD_SHARED_LIBS)
  set(KOLO_IS_STATIC OFF)
endif()
# On Debian, mpicxx is a symbolic link that the administrator points to the wrapper of one MPI. That
# wrapper is again a link, to a program that depends on the name by which it is called, so links are
# followed only as long as the target is named like an MPI compiler.
set(kolo_mpi_compiler "${MPI_CXX_COMPILER}")
while(IS_SYMLINK "${kolo_mpi_compiler}")
  file(READ_SYMLINK "${kolo_mpi_compiler}" target)
  cmake_path(ABSOLUTE_PATH target BASE_DIRECTORY "${kolo_mpi_compiler}/.." NORMALIZE)
  cmake_path(GET target FILENAME name)
  if(NOT name MATCHES "^mpi(cxx|c\\+\\+|CC)")
    break()
  endif()
  set(kolo_mpi_compiler "${target}")
endwhile()
configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/koloConfig.cmake.in"
  "${PROJECT_BINARY_DIR}/koloConfig.cmake"
  INSTALL_DESTINATION "${kolo_package_dir}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/koloConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES
  "${PROJECT_BINARY_DIR}/koloConfig.cmake" "${PROJECT_BINARY_DIR}/koloConfigVersion.cmake"
  DESTINATION "${kolo_package_dir}" COMPONENT kolo_development)

include(KoloPkgConfig)
if(KOLO_PACKAGES)
  include(KoloPackages)
else()
  # The path is not CMAKE_INSTALL_DOCDIR, which is that of the top project.
  install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DATAROOTDIR}/doc/kolo"
    COMPONENT kolo_development)
endif()
