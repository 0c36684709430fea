// SPDX-License-Identifier: Apache-2.0
// Where this process is in its job.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "rendezvous/rendezvous.hpp"
#include "session/job/job_membership.hpp"
#include "session/job/mpi_environment.hpp"

namespace kolo::internal::node {
class SharedHeap;
}

namespace kolo::internal::session {

/// How the processes of a session find each other.
enum class JobKind : std::uint8_t {
  single_process,
  mpi,     // through a communicator of MPI
  served,  // through the rendezvous server of kolorun, or of rank 0 under torchrun or srun
};

/// The rendezvous of a process that is its job's only one.
class SingleProcess : public rendezvous::Rendezvous {
 public:
  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] int size() const override { return 1; }
  [[nodiscard]] std::vector<rendezvous::Bytes> gather_all(
      std::span<const std::byte> mine) override {
    return {rendezvous::Bytes(mine.begin(), mine.end())};
  }
  [[nodiscard]] std::vector<int> ranks_of_machine() override { return {0}; }
  void check() override {}
  void settle() override {}
};

/// All that outlives a session, because the sessions of a process follow each other in one job.
/// `this_job()` is the only object. Each kind of job has a member. Atomic members may be read by
/// any thread; a member that is a class says which threads may call it.
struct Job {
  /// Determines `kind` for the session that starts. `over_mpi`: the program has given a
  /// communicator. Throws InvalidArgument for variables of a launcher that cannot be used.
  void choose_kind(bool over_mpi);

  /// From now on, children of this process count as forked: neither MPI nor a session survives a
  /// fork, so a child must not use them.
  void watch_forks();
  /// Throws InvalidArgument in a forked child.
  void require_not_forked() const;

  /// The kind of the last session that this process has begun to start.
  std::atomic<JobKind> kind{JobKind::single_process};
  SingleProcess single_process{};
  MpiEnvironment mpi{};
  JobMembership membership{};

  std::atomic<bool> is_forked{false};   // this process is a child
  std::atomic<bool> is_exiting{false};  // static objects are being destroyed
  std::once_flag watches_forks{};

  /// The heap of the last session, while the program has tensors in it: the ranks of the next
  /// session read them where they are.
  std::weak_ptr<node::SharedHeap> last_heap{};

  std::atomic<bool> is_in_elastic_run{false};    // a thread is in `elastic::run`
  std::atomic<bool> has_run_elastically{false};  // `elastic::run` was called
};

/// The process's job. Never destroyed: exit handlers use it, and the server takes a connection that
/// closes without a farewell for a loss.
[[nodiscard]] Job& this_job();

}  // namespace kolo::internal::session
