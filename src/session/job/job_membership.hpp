// SPDX-License-Identifier: Apache-2.0
// This process's membership in a job that a rendezvous server serves.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/failure.hpp"
#include "base/rank_set.hpp"
#include "rendezvous/tcp_rendezvous.hpp"

namespace kolo::internal::session {

/// The connection to the job's rendezvous server, which lasts from the first session to the end of
/// the process. Without a connection the queries answer "no" and the reports do nothing. kolorun
/// has a server of its own; under torchrun and srun, rank 0 runs it.
///
/// Only `find_interruption` and `report_awaited` are thread-safe, for the session's driver: one
/// thread at a time starts or ends a session.
class JobMembership {
 public:
  JobMembership();
  ~JobMembership();
  JobMembership& operator=(JobMembership&&) = delete;

  /// Waits until all processes of the job start a session; the result connects them and lives as
  /// long as the process. Throws PeerLeft if a process is lost meanwhile; ShutDown if the job is
  /// over; BackendError if the server cannot be reached, refuses this process, or cannot listen;
  /// InvalidArgument after `declare_complete` in an elastic job.
  [[nodiscard]] rendezvous::Rendezvous& join_generation();
  /// All ranks have agreed to end the session. Otherwise the next call of `join_generation` ends it
  /// for the ranks that are still starting it.
  void end_generation() { in_order_ = true; }

  /// True if the job continues without lost processes.
  [[nodiscard]] bool is_elastic() const { return connection_ && connection_->is_elastic(); }
  /// The number of the session among the sessions of the job, from 1 on.
  [[nodiscard]] std::uint64_t generation() const {
    return connection_ ? connection_->roster().generation : 1;
  }

  /// The number of this process's newest commit, for the next calls of `join_generation`. A process
  /// with the highest number becomes rank 0.
  void offer_commit(std::uint64_t number) { commit_ = number; }

  /// On rank 0: why all ranks should leave the session in good order; "" if nothing is to change.
  [[nodiscard]] std::string announced_change();
  /// True if the server has ended the session or the job.
  [[nodiscard]] bool is_interrupted();
  /// Why the server has ended the session of an elastic job, or that kolorun has ended. Does not
  /// block: while another thread uses the connection, the result is empty.
  [[nodiscard]] std::optional<Failure> find_interruption() noexcept;

  /// Tells the server to end these ranks of the last session, because they do not fit.
  void report_failure(const std::vector<int>& ranks, const std::string& reason);
  /// Tells the server that the session has stalled because of these ranks. A rank that reports that
  /// it waits for others itself is not to blame.
  void report_stalled(const std::vector<int>& ranks, const std::string& reason);
  /// In an elastic job: as `report_stalled`, for the ranks that this rank waits for.
  void report_awaited(const RankSet& ranks, const std::string& reason) noexcept;

  /// The session has started and its ranks fit together: from now on only a loss ends it early.
  void declare_begun();
  /// This process no longer needs the others, and they do not wait for it. An elastic job has no
  /// session after that.
  void declare_complete();

  /// This process has failed, and takes no further part.
  void fail(const std::string& reason) noexcept;
  /// Called at the end of the process. A status other than 0 counts as a failure, which also ends
  /// the job of kolorun.
  void leave(int status) noexcept;

 private:
  class OwnServer;

  void connect();
  /// Set once kolorun has been gone for some seconds, in which it would have ended this process.
  [[nodiscard]] std::optional<Failure> find_end_of_kolorun();

  std::unique_ptr<OwnServer> server_{};  // on rank 0 of a job whose launcher has none
  std::optional<rendezvous::TcpRendezvous> connection_{};
  std::uint64_t commit_ = 0;
  bool in_order_ = false;   // all ranks have agreed to end the last session
  bool completed_ = false;  // no session follows
  bool by_kolorun_ = false;
  std::optional<std::chrono::steady_clock::time_point> without_kolorun_since_{};
  // Held during a call on the connection while a session may be open, because its driver reads from
  // the connection, too.
  std::mutex mutex_{};
};

}  // namespace kolo::internal::session
