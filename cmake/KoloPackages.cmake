# SPDX-License-Identifier: Apache-2.0
# Debian packages, made by cpack:
#   libkolo0.1, libkolo-torch0.1           the shared libraries
#   libkolo-dev, libkolo-torch-dev         headers, and files for CMake and pkg-config
#   kolo-tools                             kolo-perf, kolo-diagnose, kolo-checkpoint and kolorun
# Dependencies on other packages come from dpkg-shlibdeps.
if(NOT BUILD_SHARED_LIBS OR NOT KOLO_HAVE_TORCH OR NOT TARGET kolo-perf OR NOT KOLO_HELP2MAN)
  message(FATAL_ERROR "KOLO_PACKAGES needs BUILD_SHARED_LIBS=ON, LibTorch, the tools (KOLO_BUILD_TOOLS) "
    "and help2man")
endif()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_VENDOR "Kolo")
set(CPACK_PACKAGE_CONTACT "${KOLO_MAINTAINER}")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_COMPONENTS_ALL
  kolo_runtime kolo_torch_runtime kolo_development kolo_torch_development kolo_tools)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
  OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS "${CMAKE_LIBRARY_OUTPUT_DIRECTORY}")

set(kolo_devices "cores or hosts, over MPI, sockets, libfabric and shared memory")
if(KOLO_HAVE_NCCL)
  set(kolo_devices "GPUs, cores or hosts, over NCCL, MPI and shared memory")
endif()
# kolo_package(<component> <name> <section> <contents>)
function(kolo_package component name section has)
  string(TOUPPER ${component} key)
  set(CPACK_DEBIAN_${key}_PACKAGE_NAME ${name} PARENT_SCOPE)
  set(CPACK_DEBIAN_${key}_PACKAGE_SECTION ${section} PARENT_SCOPE)
  # cpack puts the project's description before this one, as the summary.
  set(CPACK_COMPONENT_${key}_DESCRIPTION "Kolo reduces the gradients of C++ programs that train one model on several
${kolo_devices}, while they are
computed.
.
${has}" PARENT_SCOPE)
  set(folder "${CMAKE_INSTALL_DATAROOTDIR}/doc/${name}")
  install(FILES "${PROJECT_SOURCE_DIR}/packaging/debian/copyright" DESTINATION "${folder}"
    COMPONENT ${component})
  install(FILES "${PROJECT_BINARY_DIR}/packages/changelog.Debian.gz"
    "${PROJECT_BINARY_DIR}/packages/changelog.gz" DESTINATION "${folder}" COMPONENT ${component})
endfunction()

# With SOURCE_DATE_EPOCH set, the same sources give identical packages.
string(TIMESTAMP kolo_date "%a, %d %b %Y %H:%M:%S +0000" UTC)
configure_file("${PROJECT_SOURCE_DIR}/packaging/debian/changelog.in"
  "${PROJECT_BINARY_DIR}/packages/changelog.Debian" @ONLY)
configure_file("${PROJECT_SOURCE_DIR}/CHANGELOG.md" "${PROJECT_BINARY_DIR}/packages/changelog" COPYONLY)
foreach(file IN ITEMS changelog changelog.Debian)
  execute_process(COMMAND "${KOLO_GZIP}" -9nc "${PROJECT_BINARY_DIR}/packages/${file}"
    OUTPUT_FILE "${PROJECT_BINARY_DIR}/packages/${file}.gz" COMMAND_ERROR_IS_FATAL ANY)
endforeach()

kolo_package(kolo_runtime libkolo${kolo_so_version} libs
  "This package has the shared library.")
kolo_package(kolo_torch_runtime libkolo-torch${kolo_so_version} libs
  "This package has the shared library for programs that use LibTorch.")
kolo_package(kolo_development libkolo-dev libdevel
  "This package has the headers, and files for CMake and pkg-config.")
kolo_package(kolo_torch_development libkolo-torch-dev libdevel
  "This package has the headers for programs that use LibTorch, and files for\nCMake and pkg-config.")
kolo_package(kolo_tools kolo-tools devel
  "This package has kolo-perf, which measures collectives beside those of MPI,
kolo-diagnose, which tells which rank the others wait for, and kolorun, which
starts the processes of a job.")

foreach(key IN ITEMS KOLO_RUNTIME KOLO_TORCH_RUNTIME KOLO_TOOLS)
  set(CPACK_DEBIAN_${key}_PACKAGE_SHLIBDEPS ON)
endforeach()
set(same "(= ${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE})")
set(CPACK_DEBIAN_KOLO_DEVELOPMENT_PACKAGE_DEPENDS "libkolo${kolo_so_version} ${same}")
set(CPACK_DEBIAN_KOLO_DEVELOPMENT_PACKAGE_SUGGESTS "libopenmpi-dev, kolo-tools")
set(CPACK_DEBIAN_KOLO_TORCH_DEVELOPMENT_PACKAGE_DEPENDS
  "libkolo-dev ${same}, libkolo-torch${kolo_so_version} ${same}, libtorch-dev")
set(CPACK_DEBIAN_KOLO_TOOLS_PACKAGE_RECOMMENDS "mpi-default-bin")
# These are loaded at run time, so dpkg-shlibdeps does not see them.
set(CPACK_DEBIAN_KOLO_RUNTIME_PACKAGE_RECOMMENDS "libfabric1 (>= 1.17)")
if(NOT KOLO_LINKS_HIGHWAY)
  set(CPACK_DEBIAN_KOLO_RUNTIME_PACKAGE_DEPENDS "libhwy1 (>= 1.0.3)")
endif()
set(CPACK_DEBIAN_KOLO_TORCH_RUNTIME_PACKAGE_DEPENDS "libkolo${kolo_so_version} ${same}")
# Packages of programs that link a library depend on the library's package, and installing it
# updates the loader's cache.
function(kolo_library_package component library name)
  string(TOUPPER ${component} key)
  set(folder "${PROJECT_BINARY_DIR}/packages/${component}")
  file(WRITE "${folder}/shlibs" "${library} ${kolo_so_version} ${name} ${same}\n")
  file(WRITE "${folder}/triggers" "activate-noawait ldconfig\n")
  set(CPACK_DEBIAN_${key}_PACKAGE_CONTROL_EXTRA "${folder}/shlibs;${folder}/triggers" PARENT_SCOPE)
endfunction()
kolo_library_package(kolo_runtime libkolo libkolo${kolo_so_version})
kolo_library_package(kolo_torch_runtime libkolo_torch libkolo-torch${kolo_so_version})
include(CPack)
