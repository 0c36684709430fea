# SPDX-License-Identifier: Apache-2.0
# Configures, but does not build, a project that adds Kolo as a subdirectory: the default parts,
# parts on request, and parts whose packages are missing. CMakeLists.txt in the same folder sets
# KOLO_SOURCE_DIR, WORK_DIR, GENERATOR and COMPILER.

set(project "${WORK_DIR}/project")
set(build "${WORK_DIR}/build")
file(REMOVE_RECURSE "${WORK_DIR}")
# One target stands for each part.
file(WRITE "${project}/CMakeLists.txt" [[
cmake_minimum_required(VERSION 3.25)
project(parent LANGUAGES CXX)
add_subdirectory("${KOLO_SOURCE_DIR}" kolo)
set(found "")
foreach(target IN ITEMS kolo kolo-perf quickstart bench-idle unit.base)
  if(TARGET ${target})
    list(APPEND found ${target})
  endif()
endforeach()
message("targets: ${found}.")
get_property(pools GLOBAL PROPERTY JOB_POOLS)
message("pools: ${pools}.")
get_cmake_property(components COMPONENTS)
list(FILTER components EXCLUDE REGEX "^kolo_")
message("other components: ${components}.")
]])

# configure(SUCCEEDS|FAILS <what the output must contain> <argument>...)
function(configure outcome text)
  execute_process(
    COMMAND "${CMAKE_COMMAND}" -S "${project}" -B "${build}" -G "${GENERATOR}"
      "-DCMAKE_CXX_COMPILER=${COMPILER}" "-DKOLO_SOURCE_DIR=${KOLO_SOURCE_DIR}"
      -DKOLO_WITH_TORCH=OFF -DKOLO_WITH_CUDA=OFF ${ARGN}
    RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  # CMake breaks the lines of errors.
  string(REGEX REPLACE "[ \n]+" " " words "${output}")
  string(FIND "${words}" "${text}" place)
  set(wanted SUCCEEDS)
  if(NOT status EQUAL 0)
    set(wanted FAILS)
  endif()
  if(NOT outcome STREQUAL wanted OR place EQUAL -1)
    message(FATAL_ERROR "With '${ARGN}', configuring ${wanted}; expected: ${outcome}, and '${text}' "
      "in the output, which is:\n${output}")
  endif()
endfunction()

set(without_packages
  -DCMAKE_DISABLE_FIND_PACKAGE_CLI11=ON -DCMAKE_DISABLE_FIND_PACKAGE_GTest=ON)
set(all_auto -DKOLO_BUILD_TOOLS=AUTO -DKOLO_BUILD_EXAMPLES=AUTO -DKOLO_BUILD_BENCHMARKS=AUTO
  -DKOLO_BUILD_TESTS=AUTO)

configure(SUCCEEDS "targets: kolo.")
configure(SUCCEEDS "targets: kolo;kolo-perf." -DKOLO_BUILD_TOOLS=ON)
configure(SUCCEEDS "targets: kolo." -DKOLO_BUILD_TOOLS=no)
configure(SUCCEEDS "targets: kolo;kolo-perf." -DKOLO_BUILD_TOOLS=TRUE)
# "runtime" or "tools" may be components of the project itself.
configure(SUCCEEDS "other components: ." -DKOLO_BUILD_TOOLS=ON)
# A project that sets its own list of pools would remove Kolo's.
configure(SUCCEEDS "pools: .")
configure(SUCCEEDS "targets: kolo;kolo-perf;quickstart;bench-idle;unit.base." ${all_auto})
configure(SUCCEEDS "targets: kolo;quickstart;bench-idle." ${without_packages} ${all_auto})
configure(SUCCEEDS "without kolorun, kolo-diagnose, kolo-checkpoint and kolo-perf: CLI11" ${without_packages})
configure(SUCCEEDS "without the tests: GoogleTest" ${without_packages})
configure(FAILS "KOLO_BUILD_TOOLS is ON, but kolorun, kolo-diagnose, kolo-checkpoint and kolo-perf cannot be built: CLI11"
  ${without_packages} -DKOLO_BUILD_TOOLS=ON)
configure(FAILS "KOLO_BUILD_TOOLS is 'perhaps'; it must be AUTO, ON or OFF" -DKOLO_BUILD_TOOLS=perhaps)

# Without MPI, all but kolo-perf.
set(without_mpi -DCMAKE_DISABLE_FIND_PACKAGE_MPI=ON)
set(no_perf "targets: kolo;quickstart;bench-idle;unit.base.")
file(REMOVE_RECURSE "${build}")  # what was found is kept
configure(SUCCEEDS "${no_perf}" ${without_mpi} ${all_auto})
configure(SUCCEEDS "Kolo: without MPI: an MPI 3.1 was not found" ${without_mpi})
configure(SUCCEEDS "Kolo has neither MPI nor kolorun" ${without_mpi} ${without_packages})
configure(SUCCEEDS "targets: kolo;quickstart;bench-idle;unit.base." ${without_mpi}
  -DCMAKE_DISABLE_FIND_PACKAGE_CLI11=ON -UCMAKE_DISABLE_FIND_PACKAGE_GTest)
configure(SUCCEEDS "${no_perf}" -DKOLO_WITH_MPI=OFF -UCMAKE_DISABLE_FIND_PACKAGE_CLI11
  -UCMAKE_DISABLE_FIND_PACKAGE_GTest)
file(REMOVE_RECURSE "${build}")
configure(FAILS "CMAKE_DISABLE_FIND_PACKAGE_MPI" ${without_mpi} -DKOLO_WITH_MPI=ON)
