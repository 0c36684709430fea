# SPDX-License-Identifier: Apache-2.0
# Manual pages of the programs, generated from their --help.
find_program(KOLO_HELP2MAN help2man)
find_program(KOLO_GZIP gzip)
mark_as_advanced(KOLO_HELP2MAN KOLO_GZIP)
if(CMAKE_CROSSCOMPILING)  # the programs cannot run here
  message(STATUS "Kolo: without manual pages when cross-compiling")
  return()
endif()
if(NOT KOLO_HELP2MAN OR NOT KOLO_GZIP)
  message(STATUS "Kolo: without manual pages: help2man or gzip was not found (on Debian: apt install "
    "help2man)")
  return()
endif()

set(kolo_man_pages "")
foreach(page IN ITEMS
    "kolo-perf|measure Kolo's collectives beside those of MPI"
    "kolo-diagnose|tell from flight records which rank the others wait for"
    "kolo-checkpoint|merge the files of a checkpoint"
    "kolorun|start the processes of a distributed job")
  string(REPLACE "|" ";" page "${page}")
  list(POP_FRONT page program)
  if(NOT TARGET ${program})
    continue()
  endif()
  set(file "${PROJECT_BINARY_DIR}/man/${program}.1")
  # Keeps the line breaks of examples.
  add_custom_command(OUTPUT "${file}.gz"
    COMMAND "${CMAKE_COMMAND}" -E make_directory "${PROJECT_BINARY_DIR}/man"
    COMMAND "${KOLO_HELP2MAN}" --no-info --locale=C.UTF-8 "--name=${page}"
      "--manual=Kolo" "--source=Kolo ${PROJECT_VERSION}" "--output=${file}"
      "$<TARGET_FILE:${program}>"
    COMMAND sed -i "s/^\\(mpirun\\|kolorun\\) .*/&\\n.br/" "${file}"
    COMMAND "${KOLO_GZIP}" -9nf "${file}"
    DEPENDS ${program}
    COMMENT "Generating ${program}.1"
    VERBATIM)
  list(APPEND kolo_man_pages "${file}.gz")
endforeach()
add_custom_target(kolo_man ALL DEPENDS ${kolo_man_pages})
install(FILES ${kolo_man_pages} DESTINATION "${CMAKE_INSTALL_MANDIR}/man1" COMPONENT kolo_tools)
