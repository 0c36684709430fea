// SPDX-License-Identifier: Apache-2.0
#include "session/job/mpi_rendezvous.hpp"

#include <cstddef>

#include "kolo/error.hpp"
#include "node/error_codes.hpp"

namespace kolo::internal::session {
namespace {

using node::check_mpi;
using rendezvous::Bytes;

Communicator duplicate_world(MPI_Comm given) {
  if (given == MPI_COMM_NULL) return Communicator::duplicate(MPI_COMM_WORLD);
  int has_two_groups = 0;
  check_mpi(MPI_Comm_test_inter(given, &has_two_groups), "MPI_Comm_test_inter");
  if (has_two_groups != 0)
    throw InvalidArgument("kolo::init: the communicator is an intercommunicator");
  return Communicator::duplicate(given);
}

}  // namespace

Communicator::Communicator(MPI_Comm comm) : comm_(comm) {
  if (comm_ != MPI_COMM_NULL) MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
}

Communicator Communicator::duplicate(MPI_Comm comm) {
  MPI_Comm copy = MPI_COMM_NULL;
  node::check_mpi(MPI_Comm_dup(comm, &copy), "MPI_Comm_dup");
  return Communicator(copy);
}

Communicator::~Communicator() {
  if (comm_ == MPI_COMM_NULL) return;
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized == 0) MPI_Comm_free(&comm_);
}

MpiRendezvous::MpiRendezvous(MPI_Comm comm) : world_(duplicate_world(comm)) {
  check_mpi(MPI_Comm_rank(world_.get(), &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(world_.get(), &size_), "MPI_Comm_size");
}

std::vector<Bytes> MpiRendezvous::gather_all(std::span<const std::byte> mine) {
  const std::size_t bytes = mine.size();
  Bytes all(bytes * static_cast<std::size_t>(size_));
  check_mpi(MPI_Allgather(mine.data(), static_cast<int>(bytes), MPI_BYTE, all.data(),
                          static_cast<int>(bytes), MPI_BYTE, world_.get()),
            "MPI_Allgather");
  std::vector<Bytes> parts;
  for (int rank = 0; rank < size_; ++rank) {
    const auto first = all.begin() + static_cast<std::ptrdiff_t>(bytes) * rank;
    parts.emplace_back(first, first + static_cast<std::ptrdiff_t>(bytes));
  }
  return parts;
}

std::vector<int> MpiRendezvous::ranks_of_machine() {
  MPI_Comm split = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(world_.get(), MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &split),
            "MPI_Comm_split_type");
  const Communicator machine(split);
  int size = 1;
  MPI_Comm_size(machine.get(), &size);
  std::vector<int> ranks(static_cast<std::size_t>(size));
  check_mpi(MPI_Allgather(&rank_, 1, MPI_INT, ranks.data(), 1, MPI_INT, machine.get()),
            "MPI_Allgather");
  return ranks;
}

void MpiRendezvous::check() {
  int found = 0;
  check_mpi(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, world_.get(), &found, MPI_STATUS_IGNORE),
            "MPI_Iprobe");
}

// MPI may hold back a message until it has connected and is called again, but the session may never
// call it again. So there are two barriers: the first one makes the connections, over which the
// messages of the second are sent at once.
void MpiRendezvous::settle() {
  for (int i = 0; i < 2; ++i) check_mpi(MPI_Barrier(world_.get()), "MPI_Barrier");
}

}  // namespace kolo::internal::session
