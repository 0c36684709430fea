# SPDX-License-Identifier: Apache-2.0
# kolo_add_test(NAME x KIND unit SOURCES ... [LIBRARIES ...])
#   The ctest entry and the program `<kind>.x`; no MPI.
# kolo_add_mpi_test(NAME x KIND mpi SOURCES ... RANKS 1 2 ... [LIBRARIES ...])
#   The program `<kind>.x`, and an entry `<kind>.x.np<N>` under mpirun for each number of ranks.
# kolo_add_mpi_variant(NAME x KIND mpi VARIANT v RANKS 2 ... ENVIRONMENT NAME=value ...)
#   The same program in another environment: entries `<kind>.x.<v>.np<N>`.
# kolo_add_kolorun_variant(NAME x KIND mpi RANKS 2 ... [WITHOUT gtest-pattern] [RANKS_PER_HOST n])
#   The same program started by kolorun, without MPI: entries `<kind>.x.kolorun.np<N>`. WITHOUT: tests
#   that need MPI. RANKS_PER_HOST: each n ranks count as one host, in `<kind>.x.kolorun.hosts<n>.np<N>`.
# kolo_add_mpirun_check(NAME x KIND mpi RANKS 2 ... [STATUS n] [OUTPUT regex]
#                       [ENVIRONMENT NAME=value ...] [KOLORUN | NEEDS_MPI] COMMAND target [args...])
#   Runs any program under mpirun; in a build without MPI under kolorun, unless NEEDS_MPI is given.
#   STATUS: a number, `nonzero` or `any`; default: 0. OUTPUT: a regular expression that a line of
#   standard output or error must match; with STATUS any, the whole output, joined to one line, must
#   match. KOLORUN: runs under kolorun instead, as `<kind>.x.kolorun.np<N>`.
# kolo_add_mpi_script(NAME x KIND mpi SCRIPT x.sh RANKS 1 2 ... PROGRAMS target ...)
#   Runs a script of the current folder, as `<kind>.x.np<N>`. Its arguments are expect.sh, the
#   programs, a working directory, and the command that starts N ranks.
# kolo_add_made_up_hosts(NAME x RANKS_PER_HOST n RANKS 2 ... COMMAND target [args...])
#   Runs a program that already has entries again, as `mpi.x.hosts<n>.np<N>`: each n ranks count as
#   one host.
#
# In a build without MPI, scripts and programs on made-up hosts start under kolorun instead of
# mpirun; tests and variants of tests that need mpirun are left out.
#
# A test's label is its kind, and the target kolo_tests_<kind> builds all tests of a kind. Tests can
# include private headers and use the libraries that Kolo links.

# mpirun ends a hanging run before ctest does, so that no rank stays behind.
set(kolo_mpirun_timeout 300)
set(kolo_test_timeout 330)
if(KOLO_SANITIZE)
  set(kolo_mpirun_timeout 570)
  set(kolo_test_timeout 600)
endif()

# One entry may run more ranks than there are cores. Open MPI and MPICH read MPIEXEC_TIMEOUT.
set(kolo_test_environment
  MPIEXEC_TIMEOUT=${kolo_mpirun_timeout}
  OMPI_ALLOW_RUN_AS_ROOT=1
  OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  OMPI_MCA_rmaps_base_oversubscribe=1
  OMPI_MCA_mpi_yield_when_idle=1
  OMPI_MCA_hwloc_base_binding_policy=none
  OMPI_MCA_btl_vader_single_copy_mechanism=none
  OMP_NUM_THREADS=1
  GTEST_COLOR=no
  KOLO_FLIGHT_RECORDER_DIR=off
  ASAN_OPTIONS=detect_leaks=0)

# MPICH's mpiexec kills the other ranks when a signal ends one, before they can report it. Tests
# that are disabled with MPICH: those with options of Open MPI's mpirun; those that kill by process
# number; those that wait for a report of another host or name all survivors, since the first rank
# that has reported the loss aborts the job; and those that signal ranks through mpirun, since
# SIGUSR2 ends mpiexec.
set(kolo_not_with_mpich
  "faults|gpu_check.dry_run|cifar10_killed|small_dev_shm.killed|killed.*hosts2|recordings.signalled")
string(APPEND kolo_not_with_mpich "|recordings.killed.np[34]|mpi.departure.killed[a-z_]*.rank[01].np4"
  "|reopen.killed|lifetime.broken")
set(kolo_mpiexec_kills OFF)
if(KOLO_HAVE_MPI)
  execute_process(COMMAND "${MPIEXEC_EXECUTABLE}" --version OUTPUT_VARIABLE version ERROR_QUIET)
  if(version MATCHES "HYDRA")
    set(kolo_mpiexec_kills ON)
    message(STATUS "Kolo: some tests that kill a rank are disabled, for they need Open MPI's mpirun")
  endif()
endif()

# The launcher of ranks: mpirun or, in a build without MPI, kolorun. Without both there are no such
# tests.
set(kolo_launcher "")
if(KOLO_HAVE_MPI)
  set(kolo_launcher "${MPIEXEC_EXECUTABLE}")
elseif(TARGET kolorun)
  set(kolo_launcher "$<TARGET_FILE:kolorun>")
endif()

# kolo_start_ranks(<variable> <name of the test> <ranks>): sets the command to which a program is
# appended. If the test kills a rank, the other ranks keep running. Empty if there is no launcher.
function(kolo_start_ranks variable name ranks)
  set(command "")
  if(kolo_launcher)
    set(command "${kolo_launcher}" -np ${ranks})
  endif()
  if(kolo_mpiexec_kills AND name MATCHES "killed")
    set(command "${MPIEXEC_EXECUTABLE}" -disable-auto-cleanup -np ${ranks}
      "${PROJECT_SOURCE_DIR}/tests/support/status_of.sh")
  endif()
  set(${variable} "${command}" PARENT_SCOPE)
endfunction()

function(kolo_test_program target kind sources libraries)
  add_executable(${target} ${sources})
  target_link_libraries(${target} PRIVATE kolo::kolo kolo_internal ${libraries})
  kolo_own_target(${target})
  kolo_test_needs(${kind} ${target})
endfunction()

function(kolo_test_needs kind target)
  if(NOT TARGET kolo_tests_${kind})
    add_custom_target(kolo_tests_${kind})
  endif()
  add_dependencies(kolo_tests_${kind} ${target})
endfunction()

function(kolo_test_entry name kind processors)
  set_tests_properties(${name} PROPERTIES
    LABELS "${kind}"
    PROCESSORS ${processors}
    TIMEOUT ${kolo_test_timeout}
    ENVIRONMENT "${kolo_test_environment}")
  if(kolo_mpiexec_kills AND name MATCHES "${kolo_not_with_mpich}")
    set_tests_properties(${name} PROPERTIES DISABLED ON)
  endif()
endfunction()

# kolo_may_skip(<test>...): exit status 77 means that something is missing on this machine. The list
# may contain tests that were not added, for lack of a launcher.
function(kolo_may_skip)
  foreach(name IN LISTS ARGN)
    if(TEST ${name})
      set_property(TEST ${name} PROPERTY SKIP_RETURN_CODE 77)
    endif()
  endforeach()
endfunction()

function(kolo_add_test)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME;KIND" "SOURCES;LIBRARIES")
  set(name ${arg_KIND}.${arg_NAME})
  kolo_test_program(${name} ${arg_KIND} "${arg_SOURCES}" "GTest::gmock_main;${arg_LIBRARIES}")
  add_test(NAME ${name} COMMAND ${name})
  kolo_test_entry(${name} ${arg_KIND} 1)
endfunction()

function(kolo_add_mpi_test)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME;KIND" "SOURCES;RANKS;LIBRARIES")
  set(name ${arg_KIND}.${arg_NAME})
  kolo_test_program(${name} ${arg_KIND} "${arg_SOURCES}" "kolo_mpi_main;${arg_LIBRARIES}")
  if(NOT KOLO_HAVE_MPI)
    return()
  endif()
  foreach(ranks IN LISTS arg_RANKS)
    add_test(NAME ${name}.np${ranks}
      COMMAND "${MPIEXEC_EXECUTABLE}" -np ${ranks}
        "$<TARGET_FILE:${name}>")
    kolo_test_entry(${name}.np${ranks} ${arg_KIND} ${ranks})
  endforeach()
endfunction()

function(kolo_add_mpi_variant)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME;KIND;VARIANT" "RANKS;ENVIRONMENT")
  if(NOT KOLO_HAVE_MPI)
    return()
  endif()
  set(program ${arg_KIND}.${arg_NAME})
  foreach(ranks IN LISTS arg_RANKS)
    set(name ${program}.${arg_VARIANT}.np${ranks})
    add_test(NAME ${name}
      COMMAND "${MPIEXEC_EXECUTABLE}" -np ${ranks}
        "$<TARGET_FILE:${program}>")
    kolo_test_entry(${name} ${arg_KIND} ${ranks})
    set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT ${arg_ENVIRONMENT})
  endforeach()
endfunction()

function(kolo_add_kolorun_variant)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME;KIND;WITHOUT;RANKS_PER_HOST" "RANKS")
  if(NOT TARGET kolorun)
    return()
  endif()
  kolo_test_needs(${arg_KIND} kolorun)
  set(program ${arg_KIND}.${arg_NAME})
  foreach(ranks IN LISTS arg_RANKS)
    set(name ${program}.kolorun.np${ranks})
    if(arg_RANKS_PER_HOST)
      set(name ${program}.kolorun.hosts${arg_RANKS_PER_HOST}.np${ranks})
    endif()
    add_test(NAME ${name}
      COMMAND kolorun -np ${ranks} "$<TARGET_FILE:${program}>" "--gtest_filter=-${arg_WITHOUT}")
    kolo_test_entry(${name} ${arg_KIND} ${ranks})
    if(arg_RANKS_PER_HOST)
      set_property(TEST ${name} APPEND PROPERTY
        ENVIRONMENT KOLO_TEST_RANKS_PER_HOST=${arg_RANKS_PER_HOST})
    endif()
  endforeach()
endfunction()

function(kolo_add_mpirun_check)
  cmake_parse_arguments(PARSE_ARGV 0 arg "KOLORUN;NEEDS_MPI" "NAME;KIND;STATUS;OUTPUT" "RANKS;ENVIRONMENT;COMMAND")
  if(arg_ENVIRONMENT MATCHES "CPU_OPERATIONS=mpi|CONTROL_INTERFACE=none")
    set(arg_NEEDS_MPI ON)
  endif()
  if(NOT kolo_launcher OR (arg_NEEDS_MPI AND NOT KOLO_HAVE_MPI))
    return()
  endif()
  if(NOT DEFINED arg_STATUS)
    set(arg_STATUS 0)
  endif()
  list(POP_FRONT arg_COMMAND program)
  kolo_test_needs(${arg_KIND} ${program})
  if(arg_KOLORUN)
    if(NOT TARGET kolorun)
      return()
    endif()
    kolo_test_needs(${arg_KIND} kolorun)
    string(APPEND arg_NAME .kolorun)
  endif()
  foreach(ranks IN LISTS arg_RANKS)
    set(name ${arg_KIND}.${arg_NAME}.np${ranks})
    kolo_start_ranks(launcher ${name} ${ranks})
    if(arg_KOLORUN)
      set(launcher "$<TARGET_FILE:kolorun>" -np ${ranks})
    endif()
    add_test(NAME ${name}
      COMMAND bash "${PROJECT_SOURCE_DIR}/tests/support/expect.sh" "${arg_STATUS}" "${arg_OUTPUT}"
        ${launcher} "$<TARGET_FILE:${program}>" ${arg_COMMAND})
    kolo_test_entry(${name} ${arg_KIND} ${ranks})
    set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT ${arg_ENVIRONMENT})
  endforeach()
endfunction()

function(kolo_add_mpi_script)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME;KIND;SCRIPT" "RANKS;PROGRAMS")
  if(NOT kolo_launcher)
    return()
  endif()
  set(programs "")
  foreach(program IN LISTS arg_PROGRAMS)
    kolo_test_needs(${arg_KIND} ${program})
    list(APPEND programs "$<TARGET_FILE:${program}>")
  endforeach()
  foreach(ranks IN LISTS arg_RANKS)
    set(name ${arg_KIND}.${arg_NAME}.np${ranks})
    kolo_start_ranks(launcher ${name} ${ranks})
    add_test(NAME ${name}
      COMMAND bash "${CMAKE_CURRENT_SOURCE_DIR}/${arg_SCRIPT}"
        "${PROJECT_SOURCE_DIR}/tests/support/expect.sh" ${programs}
        "${CMAKE_CURRENT_BINARY_DIR}/${arg_NAME}.np${ranks}" ${launcher})
    kolo_test_entry(${name} ${arg_KIND} ${ranks})
  endforeach()
endfunction()

function(kolo_add_made_up_hosts)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME;RANKS_PER_HOST" "RANKS;COMMAND")
  if(NOT kolo_launcher)
    return()
  endif()
  list(POP_FRONT arg_COMMAND program)
  foreach(ranks IN LISTS arg_RANKS)
    set(name mpi.${arg_NAME}.hosts${arg_RANKS_PER_HOST}.np${ranks})
    add_test(NAME ${name}
      COMMAND "${kolo_launcher}" -np ${ranks}
        "$<TARGET_FILE:${program}>" ${arg_COMMAND})
    kolo_test_entry(${name} mpi ${ranks})
    set_property(TEST ${name} APPEND PROPERTY
      ENVIRONMENT KOLO_TEST_RANKS_PER_HOST=${arg_RANKS_PER_HOST})
  endforeach()
endfunction()
