// SPDX-License-Identifier: Apache-2.0
// This process's place in its job, for all its sessions. The job was started by kolorun, which has
// a rendezvous server; or by torchrun or srun, and then rank 0 has the server.
//
// Only `find_interruption` and `report_awaited` are thread-safe: one thread at a time starts or
// ends a session.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/failure.hpp"
#include "base/rank_set.hpp"
#include "rendezvous/rendezvous.hpp"

namespace kolo::internal::session {

/// Waits until all processes of the job start a session, which the result connects; it lives as
/// long as the process. The job's rendezvous server carries the calls. Throws PeerLeft if a process
/// is lost meanwhile; ShutDown if the job is over; BackendError if the server cannot be reached or
/// refuses this process, or cannot serve; InvalidArgument after `declare_complete` in an elastic
/// job.
[[nodiscard]] rendezvous::Rendezvous& join_generation();

/// The last session has ended as all ranks have agreed. Otherwise the next call of
/// `join_generation` ends it for those that still start it.
void end_generation();

/// True if the job goes on without lost processes. False before the first `join_generation`.
[[nodiscard]] bool is_elastic_job();

/// The number of the session among those of the job, from 1 on.
[[nodiscard]] std::uint64_t generation_of_job();

/// The number of this process's newest commit, for the next calls of `join_generation`. Rank 0 of a
/// session is one of those with the highest.
void offer_commit(std::uint64_t number);

/// On rank 0: why all should leave the session in good order; "" if nothing is to change.
[[nodiscard]] std::string announced_change();

/// The server has ended the session, or the job.
[[nodiscard]] bool session_is_interrupted();

/// What the server says of the end of the session, in an elastic job; and in each job of kolorun,
/// that kolorun is gone. For the session's driver:
/// does not block, and may be called while another thread calls one of the other functions.
[[nodiscard]] std::optional<Failure> find_interruption() noexcept;

/// These ranks of the last session do not fit: they are to be ended.
void report_failure(const std::vector<int>& ranks, const std::string& reason);

/// The session has stalled because of these ranks, as this process has heard. Those of them that
/// wait for others themselves, and say so, are not to blame.
void report_stalled(const std::vector<int>& ranks, const std::string& reason);

/// The session has stalled, and this rank waits for these, in an elastic job. For the session's
/// driver: may be called while another thread calls one of the other functions.
void report_awaited(const RankSet& ranks, const std::string& reason) noexcept;

/// The session has started, and its ranks fit together: from now on, what ends it is a loss.
void declare_begun();

/// This process needs the others no more, and they do not wait for it. An elastic job has no
/// session after that.
void declare_complete();

/// This process has failed, and takes no further part.
void fail_job(const std::string& reason) noexcept;

/// At the end of the process. It has done its part if its exit status is 0; otherwise it has
/// failed, and so does kolorun's job. Does nothing if the process has never met the others.
void leave_job(int status) noexcept;

}  // namespace kolo::internal::session
