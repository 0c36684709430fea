// SPDX-License-Identifier: Apache-2.0
// Control messages between made-up hosts: each host consists of a few ranks of this machine.
#include <mpi.h>

#include <atomic>
#include <cstdlib>

#include "fixture.hpp"

namespace {

std::atomic<int> mpi_calls{0};

}  // namespace

// Counts the MPI calls that a session could use for messages after its start, and forwards them.
extern "C" {
int MPI_Isend(const void* data, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm,
              MPI_Request* request) {
  ++mpi_calls;
  return PMPI_Isend(data, count, type, peer, tag, comm, request);
}
int MPI_Irecv(void* data, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm,
              MPI_Request* request) {
  ++mpi_calls;
  return PMPI_Irecv(data, count, type, peer, tag, comm, request);
}
int MPI_Improbe(int peer, int tag, MPI_Comm comm, int* found, MPI_Message* message,
                MPI_Status* status) {
  ++mpi_calls;
  return PMPI_Improbe(peer, tag, comm, found, message, status);
}
int MPI_Iprobe(int peer, int tag, MPI_Comm comm, int* found, MPI_Status* status) {
  ++mpi_calls;
  return PMPI_Iprobe(peer, tag, comm, found, status);
}
int MPI_Testsome(int count, MPI_Request* requests, int* finished, int* indices,
                 MPI_Status* statuses) {
  ++mpi_calls;
  return PMPI_Testsome(count, requests, finished, indices, statuses);
}
int MPI_Test(MPI_Request* request, int* done, MPI_Status* status) {
  ++mpi_calls;
  return PMPI_Test(request, done, status);
}
}

namespace kolo::internal {
namespace {

using testing::Each;
using testing::HasSubstr;

class Hosts : public testing::Test {
 protected:
  Hosts() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
  }

  void train() const {
    ASSERT_GT(cross_size(), 1);
    for (int step = 0; step < 10; ++step) {
      std::vector<float> tensor(1000, static_cast<float>(rank_ + step));
      allreduce(tensor, {.name = "tensor", .op = ReduceOp::sum});
      EXPECT_THAT(tensor, Each(static_cast<float>(size_ * (size_ - 1) / 2 + size_ * step)));
    }
  }

  /// Agreements without data.
  void negotiate() const {
    for (int i = 0; i < 20; ++i) {
      const ProcessSet set = add_process_set({0, size_ - 1});
      EXPECT_EQ(set.size(), 2);
      remove_process_set(set);
    }
  }

  int rank_ = 0;
  int size_ = 1;
};

TEST_F(Hosts, WithoutDataMpiIsNotCalled) {
  const Session session;
  const int before = mpi_calls;
  negotiate();
  EXPECT_EQ(mpi_calls, before);
  train();
  EXPECT_GT(mpi_calls, before);
}

TEST_F(Hosts, WithoutSocketsMpiCarriesControl) {
  const Session session({.control_interface = "none"});
  const int before = mpi_calls;
  negotiate();
  EXPECT_GT(mpi_calls, before);
  train();
}

TEST_F(Hosts, OneThatDoesWithoutSocketsDecides) {
  const Session session({.control_interface = rank_ == size_ - 1 ? "none" : ""});
  const int before = mpi_calls;
  negotiate();
  EXPECT_GT(mpi_calls, before);
  train();
}

TEST_F(Hosts, TheInterfaceIsChosen) {
  for (const char* interface : {"lo", "127.0.0.0/8", "nowhere,lo"}) {
    const Session session({.control_interface = interface});
    const int before = mpi_calls;
    negotiate();
    EXPECT_EQ(mpi_calls, before) << interface;
  }
}

TEST_F(Hosts, AnInterfaceThatIsNotThereIsRefusedOnAll) {
  const auto refused = thrown_by<InvalidArgument>(
      [&] { init({.control_interface = rank_ == size_ - 1 ? "nowhere" : ""}); });
  EXPECT_THAT(refused.what(),
              HasSubstr("rank " + std::to_string(size_ - 1) +
                        ": control_interface=nowhere: names no interface that is up"));
  EXPECT_EQ(refused.ranks(), std::vector<int>{size_ - 1});
  if (rank_ == 0) setenv("OMPI_MCA_btl_tcp_if_include", "absent0", 1);
  const auto again = thrown_by<InvalidArgument>([&] { init(); });
  EXPECT_THAT(again.what(), HasSubstr("rank 0: OMPI_MCA_btl_tcp_if_include=absent0"));
  if (rank_ == 0) unsetenv("OMPI_MCA_btl_tcp_if_include");
  const Session session;
  train();
}

TEST_F(Hosts, SessionsFollowEachOther) {
  for (int i = 0; i < 10; ++i) {
    const Session session({.peer_timeout = std::chrono::seconds(i % 3)});
    train();
  }
}

}  // namespace
}  // namespace kolo::internal
