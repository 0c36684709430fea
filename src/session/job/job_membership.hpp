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

/// Owns the connection to the job's rendezvous server, which lasts from the first session to the
/// end of the process. Without a connection the queries return false or nothing, and the reports
/// have no effect. kolorun runs the server itself; under torchrun and srun, rank 0 runs it.
///
/// Not thread-safe, except `find_interruption`, `report_awaited` and `report_missed`, which the
/// session's driver calls while another thread uses the object.
class JobMembership {
 public:
  JobMembership();
  ~JobMembership();
  JobMembership& operator=(JobMembership&&) = delete;

  /// Waits until all processes of the job start a session. The result connects them and lives as
  /// long as the process. Throws PeerLeft if a process is lost during the wait; ShutDown if the job
  /// is over; BackendError if the server cannot be reached, refuses this process, or cannot listen;
  /// InvalidArgument after `declare_complete` in an elastic job.
  [[nodiscard]] rendezvous::Rendezvous& join_generation();
  /// Notes that all ranks have agreed to end the session. Without this call, the next call of
  /// `join_generation` ends the session for ranks that are still starting it.
  void end_generation() { in_order_ = true; }

  /// True if the job continues without lost processes.
  [[nodiscard]] bool is_elastic() const { return connection_ && connection_->is_elastic(); }
  /// The number of the session in its job, counted from 1.
  [[nodiscard]] std::uint64_t generation() const {
    return connection_ ? connection_->roster().generation : 1;
  }

  /// Sets the number of this process's newest commit for the next calls of `join_generation`. A
  /// process with the highest number becomes rank 0, so that the newest commit is not lost.
  void offer_commit(std::uint64_t number) { commit_ = number; }

  /// The reason for which all ranks should end the session in good order, such as a process that
  /// wants to join; "" if there is none. Only rank 0 is told.
  [[nodiscard]] std::string announced_change();
  /// True if the server has ended the session or the job.
  [[nodiscard]] bool is_interrupted();
  /// The failure of the session if kolorun has ended, or if the server has ended the session of an
  /// elastic job. Does not block: while another thread uses the connection, the result is empty.
  [[nodiscard]] std::optional<Failure> find_interruption() noexcept;

  /// Tells the server to end the processes of these ranks, because they do not fit the session.
  void report_failure(const std::vector<int>& ranks, const std::string& reason);
  /// Tells the server that the session has stalled because of these ranks. The server does not
  /// blame a rank that reports that it waits for others itself.
  void report_stalled(const std::vector<int>& ranks, const std::string& reason);
  /// The same for the ranks that this rank waits for. Does nothing unless the job is elastic.
  void report_awaited(const RankSet& ranks, const std::string& reason) noexcept;

  /// Tells the server that the session has begun and its ranks are compatible. From now on only a
  /// loss ends it early.
  void declare_begun();
  /// Tells the server that this process has completed its work: it needs no other process, and none
  /// waits for it. An elastic job has no further session.
  void declare_complete();

  /// Tells the server that this process has failed and takes no further part.
  void fail(const std::string& reason) noexcept;
  /// Tells kolorun that the session of this process ends because of an error of its own, so that
  /// it can name the first cause if the job fails. Call it before other ranks learn of the end.
  void report_own_failure(const std::string& reason) noexcept;
  /// Tells kolorun that other ranks have ended the session of this process, or this operation in
  /// words, so that it does not take this process for the first cause, and can say what it did.
  void report_missed(const RankSet& ranks, const std::string& operation) noexcept;
  /// Called at the end of the process. A status other than 0 counts as a failure, which also ends a
  /// job of kolorun.
  void leave(int status) noexcept;

 private:
  class OwnServer;

  void connect();
  /// A failure once kolorun has been gone for some seconds, in which it should have ended this
  /// process.
  [[nodiscard]] std::optional<Failure> find_end_of_kolorun();

  std::unique_ptr<OwnServer> server_{};  // only on rank 0, and not under kolorun
  std::optional<rendezvous::TcpRendezvous> connection_{};
  std::uint64_t commit_ = 0;
  bool in_order_ = false;   // all ranks have agreed to end the last session
  bool completed_ = false;  // the elastic job is complete, so no session follows
  bool by_kolorun_ = false;
  std::optional<std::chrono::steady_clock::time_point> without_kolorun_since_{};
  // Guards `connection_` while a session may be open, because the session's driver reads from it
  // too.
  std::mutex mutex_{};
};

}  // namespace kolo::internal::session
