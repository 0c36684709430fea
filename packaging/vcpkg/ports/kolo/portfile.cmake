# SPDX-License-Identifier: Apache-2.0
# An overlay port: vcpkg install kolo --overlay-ports=packaging/vcpkg/ports
# The sources are those of the repository that contains this port.
get_filename_component(SOURCE_PATH "${CMAKE_CURRENT_LIST_DIR}/../../../.." ABSOLUTE)

vcpkg_check_features(OUT_FEATURE_OPTIONS features
  FEATURES
    tools KOLO_BUILD_TOOLS
    torch KOLO_WITH_TORCH)

vcpkg_cmake_configure(
  SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS
    ${features}
    -DKOLO_BUILD_TESTS=OFF
    -DKOLO_BUILD_EXAMPLES=OFF
    -DKOLO_BUILD_BENCHMARKS=OFF
    -DKOLO_WITH_CUDA=OFF)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH lib/cmake/kolo)
vcpkg_fixup_pkgconfig()
if("tools" IN_LIST FEATURES)
  vcpkg_copy_tools(TOOL_NAMES kolo-perf kolo-checkpoint kolo-diagnose kolorun AUTO_CLEAN)
endif()
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include" "${CURRENT_PACKAGES_DIR}/debug/share")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
