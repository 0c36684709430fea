# SPDX-License-Identifier: Apache-2.0
# Settings that Kolo's own targets share. Nothing in this file affects a user's targets.

# clang 14 warns about aggregates with a base class whose members have no braces of their own, which
# are not needed.
add_library(kolo_warnings INTERFACE)
set(kolo_warning_flags -Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow
  $<$<CXX_COMPILER_ID:Clang>:-Wno-missing-braces>
  $<$<BOOL:${KOLO_WARNINGS_AS_ERRORS}>:-Werror>)
target_compile_options(kolo_warnings INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:${kolo_warning_flags}>")

# Linked publicly but only in the build tree, because programs that link an instrumented library
# need the sanitizer too.
add_library(kolo_sanitizer INTERFACE)
if(KOLO_SANITIZE STREQUAL "address")
  set(kolo_sanitizer_flags -fsanitize=address,undefined -fno-sanitize-recover=undefined)
elseif(KOLO_SANITIZE STREQUAL "thread")
  set(kolo_sanitizer_flags -fsanitize=thread)
endif()
if(KOLO_BUILD_FUZZERS)
  list(APPEND kolo_sanitizer_flags -fsanitize=fuzzer-no-link,float-cast-overflow)
endif()
if(kolo_sanitizer_flags)
  target_compile_options(kolo_sanitizer INTERFACE
    "$<$<COMPILE_LANGUAGE:CXX>:${kolo_sanitizer_flags};-fno-omit-frame-pointer>")
  target_link_options(kolo_sanitizer INTERFACE ${kolo_sanitizer_flags})
endif()

# A file that includes torch/torch.h takes 1.3 GB to compile, more with a sanitizer.
cmake_host_system_information(RESULT kolo_memory_mb QUERY TOTAL_PHYSICAL_MEMORY)
math(EXPR kolo_torch_jobs "${kolo_memory_mb} / 3000")
if(kolo_torch_jobs LESS 1)
  set(kolo_torch_jobs 1)
endif()
# Another project has its own list of job pools, which may replace this one.
if(PROJECT_IS_TOP_LEVEL)
  set_property(GLOBAL APPEND PROPERTY JOB_POOLS kolo_torch=${kolo_torch_jobs})
endif()

# kolo_own_target(<target>): sets C++20 and warnings, compiles several files together if KOLO_UNITY
# is ON, and limits parallel compilations of targets that use LibTorch. Headers take most of the
# compile time, those of LibTorch 6 to 25 s per file; a precompiled header saves only a third of
# that.
function(kolo_own_target target)
  target_compile_features(${target} PRIVATE cxx_std_20)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF)
  target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:kolo_warnings>)
  if(KOLO_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 16)
  endif()
  get_target_property(libraries ${target} LINK_LIBRARIES)
  if(PROJECT_IS_TOP_LEVEL AND libraries MATCHES "kolo::torch|(^|;)(kolo_)?torch($|;)")
    set_target_properties(${target} PROPERTIES JOB_POOL_COMPILE kolo_torch)
  endif()
endfunction()

# kolo_library(<target> [<property> <value>]...): settings of Kolo's two libraries. A shared library
# that contains one of them exports only names that are marked KOLO_EXPORT.
function(kolo_library target)
  set_target_properties(${target} PROPERTIES
    LINKER_LANGUAGE CXX
    POSITION_INDEPENDENT_CODE ON
    CXX_VISIBILITY_PRESET hidden
    CUDA_VISIBILITY_PRESET hidden
    VISIBILITY_INLINES_HIDDEN ON
    ${ARGN})
endfunction()

# The version in the file names of shared libraries. Programs in C keep running within a major version
# (docs/compatibility.md); versions of symbols stop programs in C++ of other minor versions.
set(kolo_so_version ${PROJECT_VERSION_MAJOR})
if(kolo_so_version EQUAL 0)
  set(kolo_so_version 0.${PROJECT_VERSION_MINOR})
endif()

# kolo_symbol_versions(<target> [<list>]): gives the exported names of a shared library versions, so that
# the dynamic linker refuses a program that needs others: functions of the C interface KOLO_<first version
# with the function>, by the list, and names of C++ KOLOCXX_<this minor version>
# (docs/decisions/0211-the-interface-of-c-is-described-by-its-headers.md).
function(kolo_symbol_versions target)
  set(text "")
  set(before "")
  if(ARGC GREATER 1)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${ARGV1}")
    file(STRINGS "${ARGV1}" lines)
    foreach(line IN LISTS lines)
      if(NOT line MATCHES "^(kolo_[a-z_]+) ([0-9.]+)$")
        message(FATAL_ERROR "${ARGV1}: not a function and a version: ${line}")
      endif()
      list(APPEND versions ${CMAKE_MATCH_2})
      list(APPEND functions_${CMAKE_MATCH_2} ${CMAKE_MATCH_1})
    endforeach()
    list(REMOVE_DUPLICATES versions)
    list(SORT versions COMPARE NATURAL)
    foreach(version IN LISTS versions)
      string(JOIN "; " functions ${functions_${version}})
      string(APPEND text "KOLO_${version} { ${functions}; }${before};\n")
      set(before " KOLO_${version}")
    endforeach()
  endif()
  set(minor ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  string(APPEND text "KOLOCXX_${minor} { _Z*4kolo*; };\n")
  set(map "${PROJECT_BINARY_DIR}/${target}.map")
  file(CONFIGURE OUTPUT "${map}" CONTENT "${text}" @ONLY)
  target_link_options(${target} PRIVATE "LINKER:--version-script,${map}")
  set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS "${map}")
endfunction()

# kolo_add_shared(<target> <file set>...): adds <target>_shared, a shared library of the static
# library's objects, and the alias kolo::<name> for the one that BUILD_SHARED_LIBS selects. The
# caller links the dependencies of the shared one.
function(kolo_add_shared target)
  add_library(${target}_shared SHARED)
  get_target_property(name ${target} EXPORT_NAME)
  if(NOT name)
    set(name ${target})
  endif()
  kolo_library(${target}_shared EXPORT_NAME ${name} OUTPUT_NAME ${target}
    VERSION ${PROJECT_VERSION} SOVERSION ${kolo_so_version})
  add_dependencies(${target}_shared ${target})
  # The static library is named by its file, so that its dependencies are not linked too.
  target_link_libraries(${target}_shared
    PRIVATE -Wl,--whole-archive $<TARGET_FILE:${target}> -Wl,--no-whole-archive
    PUBLIC $<BUILD_INTERFACE:kolo_sanitizer>)
  target_compile_features(${target}_shared PUBLIC cxx_std_20)
  foreach(file_set IN LISTS ARGN)
    set(suffix _${file_set})
    if(file_set STREQUAL "HEADERS")
      set(suffix "")
    endif()
    get_target_property(files ${target} HEADER_SET${suffix})
    get_target_property(folders ${target} HEADER_DIRS${suffix})
    target_sources(${target}_shared PUBLIC
      FILE_SET ${file_set} TYPE HEADERS BASE_DIRS ${folders} FILES ${files})
  endforeach()
  # Programs in Kolo's own build link the static library, since tests use its internals.
  if(BUILD_SHARED_LIBS AND NOT PROJECT_IS_TOP_LEVEL)
    add_library(kolo::${name} ALIAS ${target}_shared)
  else()
    add_library(kolo::${name} ALIAS ${target})
  endif()
  if(NOT BUILD_SHARED_LIBS)
    set_target_properties(${target}_shared PROPERTIES EXCLUDE_FROM_ALL ON)
  endif()
endfunction()

# kolo_vector_sources(<file>...): sources of the target kolo, by their paths from src, with loops over
# elements, some compiled once per instruction set. Vector and scalar code must give the same bits,
# so neither may fuse a multiplication with an addition.
function(kolo_vector_sources)
  set_source_files_properties(${ARGN} TARGET_DIRECTORY kolo PROPERTIES
    COMPILE_OPTIONS "-ffp-contract=off;$<$<CONFIG:RelWithDebInfo>:-O3>"
    COMPILE_DEFINITIONS HWY_DISABLED_TARGETS=HWY_SSSE3)
endfunction()

# kolo_add_example(NAME x SOURCES a.cpp... LIBRARIES kolo::kolo...): the program bin/x.
function(kolo_add_example)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME" "SOURCES;LIBRARIES")
  add_executable(${arg_NAME} ${arg_SOURCES})
  target_link_libraries(${arg_NAME} PRIVATE ${arg_LIBRARIES})
  kolo_own_target(${arg_NAME})
endfunction()
