// SPDX-License-Identifier: Apache-2.0
// The messages between the rendezvous server, its processes and its agents, and their encoding with
// FlatBuffers; the schema is rendezvous.fbs.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "transport/handshake.hpp"

namespace kolo::internal::rendezvous {

using Bytes = std::vector<std::byte>;
/// Identifies a process that the server has started or that has connected by itself. 0: none.
/// Numbers are never reused.
using ProcessId = std::uint64_t;
/// The number of a session of a job, counted from 1. 0: none.
using GenerationNumber = std::uint64_t;

using transport::Secret;

// Bounds on the data that is read from a connection, in bytes.
inline constexpr std::size_t max_text = 4096;         // a reason; senders truncate longer ones
inline constexpr std::size_t max_name = 256;          // the name of a host, machine or version
inline constexpr std::size_t max_payload = 1 << 20;   // one rank's part of a collective call
inline constexpr std::size_t max_handshake = 4096;    // a message before the welcome
inline constexpr std::size_t max_message = 64 << 20;  // any other message
inline constexpr int max_ranks = 1 << 16;             // ranks in a generation; slots on a host

enum class Role : std::uint8_t { process, agent, last = agent };

// ---- from both sides ----

/// A message of the handshake, with which a connection begins. All later messages have tags.
struct HandshakeStep {
  Bytes bytes{};

  friend bool operator==(const HandshakeStep&, const HandshakeStep&) = default;
};

// ---- from processes ----

/// The identity of a process or an agent. It is sent after the handshake, since it may describe the
/// job.
struct Hello {
  Role role{};
  // For a process: the number under which an agent has started it; 0 without an agent. For an
  // agent: a number that stays the same when the agent reconnects; 0 if it never reconnects.
  ProcessId process = 0;
  std::string host{};  // the host's name, for messages
  // Equal for all processes that can share memory. For an agent: "" if a launcher chooses hosts.
  std::string machine{};
  std::int32_t pid = 0;
  std::int32_t wanted_rank = -1;  // only for a process without an agent
  std::int32_t slots = 0;         // only for an agent: the number of processes that it can run
  std::string version{};          // Kolo's version
  std::string job{};              // only for an agent: the job that it belongs to; "": any job
  bool stands_by = false;         // only for an agent: its kolorun can take over from the server
  bool votes = false;             // only for an agent: it has lost its server, and a vote follows

  friend bool operator==(const Hello&, const Hello&) = default;
};

/// The process is ready for the next generation.
struct Join {
  GenerationNumber generation = 0;  // the process was a member of this generation; 0: none yet
  std::uint64_t commit = 0;         // the number of its newest commit; 0: none
  bool orderly = false;  // true: all ranks agreed to leave the generation; false: it broke

  friend bool operator==(const Join&, const Join&) = default;
};

/// A rank's part of a collective call. All ranks make the same calls in the same order.
struct Contribution {
  GenerationNumber generation = 0;
  std::uint64_t sequence = 0;
  Bytes payload{};

  friend bool operator==(const Contribution&, const Contribution&) = default;
};

/// The session of the generation has started, and its ranks have found each other compatible.
struct Begun {
  GenerationNumber generation = 0;

  friend bool operator==(const Begun&, const Begun&) = default;
};

/// The process has finished all work that involves the others. It may continue alone for any time:
/// the others neither wait for it nor count it as lost.
struct Completed {
  GenerationNumber generation = 0;

  friend bool operator==(const Completed&, const Completed&) = default;
};

/// The process has finished its part of the job. Generation 0: it was never a member.
struct Leave {
  GenerationNumber generation = 0;

  friend bool operator==(const Leave&, const Leave&) = default;
};

/// The process ends because of an exception.
struct Failed {
  std::string reason{};

  friend bool operator==(const Failed&, const Failed&) = default;
};

/// The session of the process has failed, and not because of others: an exception has ended its
/// scope, or the process exits in it. Sent before the other ranks learn of it. The process may go
/// on.
struct SessionFailed {
  std::string reason{};

  friend bool operator==(const SessionFailed&, const SessionFailed&) = default;
};

/// The session of the process has failed, or an operation of it, because of other ranks. Tells
/// victims from the first cause.
struct RanksMissed {
  GenerationNumber generation = 0;
  std::vector<std::int32_t> ranks{};
  std::string operation{};  // in which the process was, such as `allreduce "x"`; "": in none

  friend bool operator==(const RanksMissed&, const RanksMissed&) = default;
};

/// Reports ranks that make no progress although others wait for them, or that are incompatible.
struct FailureReport {
  GenerationNumber generation = 0;
  std::vector<std::int32_t> ranks{};
  std::string reason{};
  bool stalled = false;  // true: the ranks keep others waiting, but may wait for others themselves

  friend bool operator==(const FailureReport&, const FailureReport&) = default;
};

/// Where the process is in the job, for a standby that has taken over.
struct Standing {
  GenerationNumber generation = 0;   // its latest one; 0: none yet
  GenerationNumber age = 0;          // its first one
  std::vector<ProcessId> members{};  // by rank, in the latest one
  bool completed = false;            // as the message of this name says

  friend bool operator==(const Standing&, const Standing&) = default;
};

// ---- from agents ----

/// A process has ended. `status` follows the convention of shells: the exit status, or 128 plus the
/// number of the signal that killed the process.
struct Exited {
  ProcessId process = 0;
  std::int32_t status = 0;
  std::string detail{};      // what else is known, such as that memory was short
  std::string last_lines{};  // the end of its standard error, if the agent has seen it
  bool by_signal = false;    // a signal has told its agent to end

  friend bool operator==(const Exited&, const Exited&) = default;
};

/// The agent's host is about to leave the job.
struct Removal {
  std::string reason{};

  friend bool operator==(const Removal&, const Removal&) = default;
};

/// A process of an agent that changes its server.
struct Held {
  ProcessId process = 0;
  std::int32_t rank = -1;  // with which it was started; -1: none
  std::int32_t slot = -1;  // -1: it has ended

  friend bool operator==(const Held&, const Held&) = default;
};

/// An agent that has lost its server asks the standby to take over. It obeys the lost server no
/// more, whatever comes of its vote.
struct Vote {
  std::vector<ProcessId> voters{};  // as in the electorate
  ProcessId server = 0;
  ProcessId standby = 0;
  std::vector<Held> processes{};
  std::chrono::nanoseconds silence{};  // since the lost server was heard
  // The process of the lost server: it has closed the connection, and its host refuses another.
  bool has_ended = false;

  friend bool operator==(const Vote&, const Vote&) = default;
};

/// Shows that the sender is alive. An agent sends it, and the server sends it back. A server that
/// was suspended sends a number other than 0, and the agent sends that back.
struct Keepalive {
  std::uint64_t count = 0;

  friend bool operator==(const Keepalive&, const Keepalive&) = default;
};

// ---- from the server ----

/// The answer to a hello: admits the process or agent.
struct Welcome {
  std::chrono::nanoseconds lease{};
  ProcessId process = 0;  // 0 for an agent
  bool elastic = false;   // true: the job continues without lost processes

  friend bool operator==(const Welcome&, const Welcome&) = default;
};

/// The process or agent does not take part in the job, or no longer does. The server closes the
/// connection afterwards.
struct Refusal {
  std::string reason{};
  std::chrono::nanoseconds retry{};  // a new hello may be accepted within this time; 0: never
  bool guards_job = false;           // a standby says that it may take over a job that runs

  friend bool operator==(const Refusal&, const Refusal&) = default;
};

struct Member {
  ProcessId process = 0;
  std::string host{};
  std::string machine{};
  std::int32_t pid = 0;
  std::uint64_t commit = 0;

  friend bool operator==(const Member&, const Member&) = default;
};

/// A new generation. The rank of a member is its index in `members`.
struct Roster {
  GenerationNumber generation = 0;
  std::vector<Member> members{};

  friend bool operator==(const Roster&, const Roster&) = default;
};

/// The generation was broken up, because a rank is lost or its session has failed.
struct Interruption {
  GenerationNumber generation = 0;
  std::vector<std::int32_t> ranks{};  // the lost ranks
  std::string reason{};

  friend bool operator==(const Interruption&, const Interruption&) = default;
};

struct Payload {
  Bytes bytes{};

  friend bool operator==(const Payload&, const Payload&) = default;
};

/// The result of a collective call: the parts of all ranks, by rank.
struct Result {
  GenerationNumber generation = 0;
  std::uint64_t sequence = 0;
  std::vector<Payload> payloads{};

  friend bool operator==(const Result&, const Result&) = default;
};

/// Tells rank 0 that membership will change, so that all ranks should leave the generation at the
/// next commit.
struct Announcement {
  GenerationNumber generation = 0;
  std::string reason{};

  friend bool operator==(const Announcement&, const Announcement&) = default;
};

/// A process that an agent is to start. `rank`: -1 after the first generation.
struct Launch {
  ProcessId process = 0;
  std::int32_t rank = -1;
  std::int32_t size = 0;
  std::int32_t local_rank = 0;  // also the index of its slot
  std::int32_t local_size = 0;
  std::int32_t restarts = 0;  // how many times the job has been started again

  friend bool operator==(const Launch&, const Launch&) = default;
};

struct Start {
  std::vector<Launch> launches{};

  friend bool operator==(const Start&, const Start&) = default;
};

/// Tells an agent to end a process, after a short time for the process to end by itself.
struct Kill {
  ProcessId process = 0;
  std::string reason{};

  friend bool operator==(const Kill&, const Kill&) = default;
};

/// The job is over, or the receiver's host was removed from it. `status` is the exit status of the
/// job.
struct End {
  std::int32_t status = 0;
  std::string reason{};
  bool restarts = false;    // the job starts again, with a new server at the same address
  bool superseded = false;  // only this server ends: the standby may have taken over

  friend bool operator==(const End&, const End&) = default;
};

/// Forwards a signal that kolorun has received to the agents.
struct Signal {
  std::int32_t number = 0;

  friend bool operator==(const Signal&, const Signal&) = default;
};

/// The agents that may let the standby take over, by their numbers. Fixed when the job begins.
struct Electorate {
  std::vector<ProcessId> voters{};
  ProcessId server = 0;   // the agent on the server's host
  ProcessId standby = 0;  // the agent on that of the standby

  friend bool operator==(const Electorate&, const Electorate&) = default;
};

/// The sender, a standby, has taken over: the receiver is to leave its server and say where it
/// stands. A process passes the message on to the server that it leaves.
struct Succession {
  std::string reason{};

  friend bool operator==(const Succession&, const Succession&) = default;
};

using Message =
    std::variant<Hello, Join, Contribution, Leave, Failed, FailureReport, Exited, Removal,
                 Keepalive, Welcome, Refusal, Roster, Interruption, Result, Announcement, Start,
                 Kill, End, Signal, Begun, Completed, HandshakeStep, SessionFailed, RanksMissed,
                 Vote, Standing, Electorate, Succession>;

// ---- encoding ----

/// A message that is damaged or that no correct sender sends.
class ProtocolError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

[[nodiscard]] Bytes encode(const Message& message);

/// Verifies the bytes before reading them. Throws ProtocolError for damaged messages, and for texts
/// and lists longer than the bounds in message.hpp.
[[nodiscard]] Message decode(std::span<const std::byte> bytes);

}  // namespace kolo::internal::rendezvous
