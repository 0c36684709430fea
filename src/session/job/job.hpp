// SPDX-License-Identifier: Apache-2.0
// This process's place in its job, and the state that outlives a session.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kolo/error.hpp"
#include "rendezvous/rendezvous.hpp"
#include "session/job/job_membership.hpp"
#include "session/job/launcher.hpp"
#include "session/job/mpi_environment.hpp"

namespace kolo::internal::node {
class SharedHeap;
}

namespace kolo::internal::session {

/// How the processes of a session find each other.
enum class JobKind : std::uint8_t {
  single_process,
  mpi,     // through an MPI communicator
  served,  // through a rendezvous server: that of kolorun, or of rank 0 under torchrun or srun
};

/// The rendezvous of a job that consists of this process alone.
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

struct Job;

/// The process's job. Never destroyed, because exit handlers use it, and because destruction would
/// close the connection without a farewell, which the server takes for the loss of this process.
[[nodiscard]] inline Job& this_job();

/// The state that outlives a session, because several sessions of a process may follow each other
/// in one job. `this_job()` is the only object. Each kind of job has a member. Any thread may read
/// the atomic members; the comments of the other members' classes say which threads may call them.
struct Job {
  /// Sets `kind` for the session that is about to start. `over_mpi`: the program has passed a
  /// communicator. Throws InvalidArgument for launcher variables that cannot be used.
  void choose_kind(bool over_mpi) {
    const bool served = !over_mpi && (started_by_kolorun() ||
                                      (find_serverless_job() && !MpiEnvironment::has_company()));
    kind = served                             ? JobKind::served
           : over_mpi || !is_single_process() ? JobKind::mpi
                                              : JobKind::single_process;
  }

  /// From now on, children of this process count as forked: neither MPI nor a session survives a
  /// fork, so a child must not use them.
  void watch_forks() {
    static const int watches =
        ::pthread_atfork(nullptr, nullptr, [] { this_job().is_forked = true; });
    static_cast<void>(watches);
  }
  /// Throws InvalidArgument in a forked child.
  void require_not_forked() const {
    if (is_forked)
      throw InvalidArgument(
          "this process was forked from one that had started Kolo, whose connections do not "
          "survive that: fork before kolo::init, or leave Kolo to the parent");
  }

  /// The kind of the last session that this process has begun to start.
  std::atomic<JobKind> kind{JobKind::single_process};
  SingleProcess single_process{};
  MpiEnvironment mpi{};
  JobMembership membership{};

  std::atomic<bool> is_forked{false};   // this process is a forked child
  std::atomic<bool> is_exiting{false};  // static objects are being destroyed

  /// The heap of the last session, as long as the program has tensors in it. The next session
  /// shares it again, so that other ranks can still read these tensors directly.
  std::weak_ptr<node::SharedHeap> last_heap{};

  std::atomic<bool> is_in_elastic_run{false};    // a thread is in `elastic::run`
  std::atomic<bool> has_run_elastically{false};  // `elastic::run` was called
};

inline Job& this_job() {
  static Job& job = *new Job;
  return job;
}

}  // namespace kolo::internal::session
