// SPDX-License-Identifier: Apache-2.0
// The ways of lifetime_program that call MPI.
#include <mpi.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include "kolo/mpi.hpp"
#include "lifetime.hpp"

namespace {

int rank_in(MPI_Comm comm) {
  int rank = 0;
  MPI_Comm_rank(comm, &rank);
  return rank;
}

int size_of(MPI_Comm comm) {
  int size = 0;
  MPI_Comm_size(comm, &size);
  return size;
}

/// The program's own MPI, of which it makes use after the session too.
void with_mpi_at(int level) {
  int provided = MPI_THREAD_SINGLE;
  MPI_Init_thread(nullptr, nullptr, level, &provided);
  const int rank = rank_in(MPI_COMM_WORLD);
  const int size = size_of(MPI_COMM_WORLD);
  if (provided < MPI_THREAD_SERIALIZED) {
    check_throws<kolo::InvalidArgument>([] { kolo::init(); }, "MPI_THREAD_SERIALIZED");
    check_throws<kolo::InvalidArgument>([] { kolo::init(MPI_COMM_WORLD); }, "MPI_Init_thread");
    check(!kolo::initialized(), "nothing was started");
  } else {
    for (int round = 0; round < 2; ++round) {
      const kolo::Session session;
      work(rank, size);
    }
  }
  int sum = 1;
  MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  check(sum == size, "MPI works after the session");
  MPI_Finalize();
}

/// Sessions of their own among the ranks of each parity, then in reverse order, then of all.
void on_communicators() {
  check_throws<kolo::InvalidArgument>([] { kolo::init(MPI_COMM_NULL); }, "MPI_COMM_NULL");
  check_throws<kolo::InvalidArgument>([] { kolo::init(MPI_COMM_WORLD); }, "not initialized");
  int provided = MPI_THREAD_SINGLE;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided);
  const int rank = rank_in(MPI_COMM_WORLD);
  const int size = size_of(MPI_COMM_WORLD);
  for (const bool reversed : {false, true}) {
    MPI_Comm half = MPI_COMM_NULL;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, reversed ? -rank : rank, &half);
    if (size > 1 && !reversed) {
      MPI_Comm halves = MPI_COMM_NULL;
      MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - rank % 2, 0, &halves);
      check_throws<kolo::InvalidArgument>([&] { kolo::init(halves); }, "intercommunicator");
      MPI_Comm_free(&halves);
    }
    kolo::init(half);
    work(rank_in(half), size_of(half));
    int sum = 1;  // the program's own traffic, on the same communicator
    MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, half);
    check(sum == kolo::size(), "the communicator is the program's own");
    kolo::shutdown();
    MPI_Comm_free(&half);
  }
  kolo::init(MPI_COMM_WORLD);
  work(rank, size);
  kolo::shutdown();
  MPI_Finalize();
  check_throws<kolo::InvalidArgument>([] { kolo::init(); }, "finalized");
}

/// With the session open, which ends by that.
void finalized_early() {
  int provided = MPI_THREAD_SINGLE;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided);
  kolo::init();
  work(kolo::rank(), kolo::size());
  MPI_Finalize();
  check(!kolo::initialized(), "the session is over");
  check_throws<kolo::NotInitialized>([] { (void)kolo::rank(); }, "no session");
  kolo::shutdown();  // does nothing
}

/// A rank hangs until the others have given up; then all of them start anew.
void stalled() {
  int provided = MPI_THREAD_SINGLE;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided);
  const int rank = rank_in(MPI_COMM_WORLD);
  const int size = size_of(MPI_COMM_WORLD);
  if (size > 1) {
    const kolo::Session session({.stall_shutdown = std::chrono::milliseconds(200)});
    std::vector<float> mine(std::size_t{2} << 20, 1.0F);
    std::vector<float> all(mine.size() * static_cast<std::size_t>(size));
    kolo::barrier();
    check_throws<kolo::Error>(
        [&] {
          (void)kolo::allgather(kolo::ConstTensorView(mine), [&](auto) -> void* {
            if (rank == 1) MPI_Recv(nullptr, 0, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            return all.data();
          });
        },
        "rank 1");
    if (rank == 0) MPI_Send(nullptr, 0, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
  }
  kolo::init();
  work(rank, size);
  kolo::shutdown();
  MPI_Finalize();
}

/// Under kolorun: MPI, which the program has started, has one rank, on which a session works too.
void beside_mpi() {
  const int me = rank_of_kolorun();
  const int size = std::atoi(std::getenv("WORLD_SIZE"));
  for (int round = 0; round < 2; ++round) {
    const kolo::Session session;
    work(me, size);
  }
  int provided = MPI_THREAD_SINGLE;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided);
  {
    kolo::init(MPI_COMM_WORLD);
    work(0, 1);
    kolo::shutdown();
  }
  const kolo::Session session;
  work(me, size);
  MPI_Finalize();
  work(me, size);
}

}  // namespace

bool mpi_is_used() {
  int used = 0;
  MPI_Initialized(&used);
  return used != 0;
}

Ways ways_over_mpi() {
  return {
      {"single", [] { with_mpi_at(MPI_THREAD_SINGLE); }},
      {"funneled", [] { with_mpi_at(MPI_THREAD_FUNNELED); }},
      {"serialized", [] { with_mpi_at(MPI_THREAD_SERIALIZED); }},
      {"multiple", [] { with_mpi_at(MPI_THREAD_MULTIPLE); }},
      {"communicators", on_communicators},
      {"stalled", stalled},
      {"finalized", finalized_early},
      {"beside_mpi", beside_mpi},
  };
}
