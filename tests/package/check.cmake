# SPDX-License-Identifier: Apache-2.0
# Builds the consumer against Kolo and runs it. HOW: install or subdirectory.
# CMakeLists.txt in the same folder sets the other variables.

function(run)
  list(JOIN ARGV " " command)
  message(STATUS "${command}")
  execute_process(COMMAND ${ARGV} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

set(consumer_dir "${KOLO_BUILD_DIR}/package/${HOW}")
set(prefix "${KOLO_BUILD_DIR}/package/prefix")

set(arguments
  -G "${GENERATOR}"
  "-DCMAKE_CXX_COMPILER=${COMPILER}"
  "-DCMAKE_CXX_COMPILER_LAUNCHER=${COMPILER_LAUNCHER}")
if(HOW STREQUAL "install")
  file(REMOVE_RECURSE "${prefix}")
  run("${CMAKE_COMMAND}" --install "${KOLO_BUILD_DIR}" --config "${CONFIG}" --prefix "${prefix}")
  list(APPEND arguments "-DCMAKE_PREFIX_PATH=${prefix}" "-DCMAKE_BUILD_TYPE=${CONFIG}")
  if(TORCH_DIR)
    list(APPEND arguments -DWITH_TORCH=ON "-DTorch_DIR=${TORCH_DIR}"
      "-DKOLO_TORCH_WHEEL=${TORCH_WHEEL}")
  endif()
  if(SANITIZE STREQUAL "address")
    list(APPEND arguments "-DCMAKE_CXX_FLAGS=-fsanitize=address,undefined")
  elseif(SANITIZE STREQUAL "thread")
    list(APPEND arguments "-DCMAKE_CXX_FLAGS=-fsanitize=thread")
  endif()
else()
  # This compiles all of Kolo again, so without its optional parts and without optimization.
  list(APPEND arguments "-DKOLO_SOURCE_DIR=${KOLO_SOURCE_DIR}" -DKOLO_WITH_TORCH=OFF
    -DKOLO_WITH_CUDA=OFF -DKOLO_UNITY=ON -DCMAKE_CXX_FLAGS=-O0)
  if(MPI_COMPILER)
    list(APPEND arguments "-DMPI_CXX_COMPILER=${MPI_COMPILER}")
  endif()
endif()

file(REMOVE_RECURSE "${consumer_dir}")
run("${CMAKE_COMMAND}" -S "${SOURCE_DIR}" -B "${consumer_dir}" ${arguments})
run("${CMAKE_COMMAND}" --build "${consumer_dir}")

foreach(ranks IN ITEMS 1 2 4)
  foreach(program IN ITEMS consumer quickstart asynchronous custom_trainer)
    run("${LAUNCH}" -np ${ranks} "${consumer_dir}/${program}")
  endforeach()
  if(HOW STREQUAL "install" AND TOOLS)
    run("${LAUNCH}" -np ${ranks} "${prefix}/bin/kolo-perf" --sizes 4 --iterations 2)
  endif()
  if(HOW STREQUAL "install" AND TORCH_DIR)
    run("${CMAKE_COMMAND}" -E chdir "${consumer_dir}"
      "${LAUNCH}" -np ${ranks} "${consumer_dir}/torch_training")
  endif()
endforeach()
