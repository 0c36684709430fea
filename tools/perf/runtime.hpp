// MPI and Kolo, as kolo-perf starts and ends them.
#pragma once

#include <mpi.h>

#include <kolo/mpi.hpp>

namespace perf {

/// MPI for as long as this lives. Kolo's own thread calls it beside the program.
class MpiRuntime {
 public:
  MpiRuntime(int* argc, char*** argv) {
    MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &provided_);
  }
  MpiRuntime(const MpiRuntime&) = delete;
  MpiRuntime& operator=(const MpiRuntime&) = delete;
  ~MpiRuntime() { MPI_Finalize(); }

  [[nodiscard]] bool is_threaded() const { return provided_ == MPI_THREAD_MULTIPLE; }

 private:
  int provided_ = MPI_THREAD_SINGLE;
};

/// A session of Kolo among all ranks.
class KoloRuntime {
 public:
  KoloRuntime() { kolo::init(MPI_COMM_WORLD); }
  KoloRuntime(const KoloRuntime&) = delete;
  KoloRuntime& operator=(const KoloRuntime&) = delete;
  ~KoloRuntime() { kolo::shutdown(); }
};

}  // namespace perf
