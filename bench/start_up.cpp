// SPDX-License-Identifier: Apache-2.0
// A job that does nothing: starts, waits for all ranks, and ends.
//
//   mpirun -np N bench-start-up mpi | kolo
//
// `mpi`: with MPI alone; `kolo`: with a Kolo session, which uses MPI.
#include <mpi.h>

#include <cstdio>
#include <kolo/kolo.hpp>
#include <string>

int main(int argc, char** argv) {
  const std::string with = argc > 1 ? argv[1] : "";
  if (with == "mpi") {
    int provided = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
  }
  if (with == "kolo") {
    const kolo::Session session(argc, argv);
    kolo::barrier();
    return 0;
  }
  std::fprintf(stderr, "usage: bench-start-up mpi | kolo\n");
  return 2;
}
