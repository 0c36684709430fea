# SPDX-License-Identifier: Apache-2.0
# What Kolo's own targets have in common. Nothing in here reaches a user's targets.

# An aggregate with a base needs no braces around what the base has, but clang 14 wants them.
add_library(kolo_warnings INTERFACE)
set(kolo_warning_flags -Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow
  $<$<CXX_COMPILER_ID:Clang>:-Wno-missing-braces>
  $<$<BOOL:${KOLO_WARNINGS_AS_ERRORS}>:-Werror>)
target_compile_options(kolo_warnings INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:${kolo_warning_flags}>")

# Linked publicly, but in the build tree only: whoever links an instrumented library needs it too.
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
# Another project has its own list of pools, which may replace this one.
if(PROJECT_IS_TOP_LEVEL)
  set_property(GLOBAL APPEND PROPERTY JOB_POOLS kolo_torch=${kolo_torch_jobs})
endif()

# kolo_own_target(<target>): C++20 and warnings; several files in each compilation if KOLO_UNITY says
# so; few compilations at once if it uses LibTorch. Headers take most of the time, LibTorch's 6 to 25 s
# in each file; a precompiled header saves only a third of that.
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

# kolo_library(<target> [<property> <value>]...): of one of the two libraries. Only names that are
# marked KOLO_EXPORT can be seen from outside where it becomes a part of a shared library.
function(kolo_library target)
  set_target_properties(${target} PROPERTIES
    LINKER_LANGUAGE CXX
    POSITION_INDEPENDENT_CODE ON
    CXX_VISIBILITY_PRESET hidden
    CUDA_VISIBILITY_PRESET hidden
    VISIBILITY_INLINES_HIDDEN ON
    ${ARGN})
endfunction()

# kolo_add_shared(<target> <file set>...): the target <target>_shared, a shared library made of the
# objects of the static one, and kolo::<name>, which is one of both as BUILD_SHARED_LIBS says. The
# caller says what the shared one links.
function(kolo_add_shared target)
  add_library(${target}_shared SHARED)
  get_target_property(name ${target} EXPORT_NAME)
  if(NOT name)
    set(name ${target})
  endif()
  kolo_library(${target}_shared EXPORT_NAME ${name} OUTPUT_NAME ${target}
    VERSION ${PROJECT_VERSION}
    SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  add_dependencies(${target}_shared ${target})
  # By its file: the static library's own dependencies must not come along.
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
  # In Kolo's own build all programs link the static one, since tests use what it has inside.
  if(BUILD_SHARED_LIBS AND NOT PROJECT_IS_TOP_LEVEL)
    add_library(kolo::${name} ALIAS ${target}_shared)
  else()
    add_library(kolo::${name} ALIAS ${target})
  endif()
  if(NOT BUILD_SHARED_LIBS)
    set_target_properties(${target}_shared PROPERTIES EXCLUDE_FROM_ALL ON)
  endif()
endfunction()

# kolo_vector_sources(<file>...): of the target kolo, in the current folder: loops over elements, and
# what is compiled for each instruction set. Vectors give the bits that scalars give: neither may
# fuse a multiplication with an addition.
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
