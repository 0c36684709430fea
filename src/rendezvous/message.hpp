// SPDX-License-Identifier: Apache-2.0
// What the rendezvous server, its processes and its agents tell each other.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "transport/handshake.hpp"

namespace kolo::internal::rendezvous {

using Bytes = std::vector<std::byte>;
/// Of a process that the server has started, or that has come by itself. 0: none. Not used again.
using ProcessId = std::uint64_t;
/// Counts the sessions of a job, from 1 on. 0: none.
using GenerationNumber = std::uint64_t;

using transport::Secret;
inline constexpr std::size_t nonce_bytes = 32;
inline constexpr std::size_t proof_bytes = 32;

// Bounds of what is read from a connection, in bytes.
inline constexpr std::size_t max_text = 4096;         // reasons; longer ones are cut off
inline constexpr std::size_t max_name = 256;          // hosts, machines, versions
inline constexpr std::size_t max_payload = 1 << 20;   // one rank's part of a collective call
inline constexpr std::size_t max_handshake = 4096;    // a message before the welcome
inline constexpr std::size_t max_message = 64 << 20;  // any other
inline constexpr int max_ranks = 1 << 16;             // of a generation; slots of a host

enum class Role : std::uint8_t { process, agent, last = agent };

// ---- from processes ----

/// The first message of a process or an agent.
struct Hello {
  Bytes nonce{};
  Role role{};
  // 0: of a process that no agent has started. Of an agent: one that comes again has the same; 0:
  // it does not come again.
  ProcessId process = 0;
  std::string host{};  // its name, for people
  // The same for all processes that can share memory. Of an agent: "" if a launcher chooses hosts.
  std::string machine{};
  std::int32_t pid = 0;
  std::int32_t wanted_rank = -1;  // of a process without an agent
  std::int32_t slots = 0;         // of an agent: how many processes it can run
  std::string version{};          // of Kolo
  std::string job{};              // of an agent: what it runs, and how; "": it does not say

  friend bool operator==(const Hello&, const Hello&) = default;
};

/// The answer to a challenge: the process or agent knows the secret.
struct Proof {
  Bytes proof{};

  friend bool operator==(const Proof&, const Proof&) = default;
};

/// The process is ready for the next generation.
struct Join {
  GenerationNumber generation = 0;  // whose member it was; 0: none yet
  std::uint64_t commit = 0;         // the number of its newest one; 0: none
  bool orderly = false;  // it left the generation as all agreed; else the generation broke

  friend bool operator==(const Join&, const Join&) = default;
};

/// A rank's part of a collective call. All ranks make the same calls in the same order.
struct Contribution {
  GenerationNumber generation = 0;
  std::uint64_t sequence = 0;
  Bytes payload{};

  friend bool operator==(const Contribution&, const Contribution&) = default;
};

/// The generation's session has started, and its ranks fit together.
struct Begun {
  GenerationNumber generation = 0;

  friend bool operator==(const Begun&, const Begun&) = default;
};

/// All that the process does with the others is done. It may go on by itself for as long as it
/// likes: others neither wait for it nor miss it.
struct Completed {
  GenerationNumber generation = 0;

  friend bool operator==(const Completed&, const Completed&) = default;
};

/// The process has done its part of the job. 0: without having been a member.
struct Leave {
  GenerationNumber generation = 0;

  friend bool operator==(const Leave&, const Leave&) = default;
};

/// The process ends because of an exception.
struct Failed {
  std::string reason{};

  friend bool operator==(const Failed&, const Failed&) = default;
};

/// Ranks that do nothing more although others wait for them, or that do not fit.
struct FailureReport {
  GenerationNumber generation = 0;
  std::vector<std::int32_t> ranks{};
  std::string reason{};
  bool stalled = false;  // this process waits for them, or has heard so; they may wait for others

  friend bool operator==(const FailureReport&, const FailureReport&) = default;
};

// ---- from agents ----

/// A process has ended; `status` as a shell has it: 128 and the signal's number if one killed it.
struct Exited {
  ProcessId process = 0;
  std::int32_t status = 0;

  friend bool operator==(const Exited&, const Exited&) = default;
};

/// The host is about to go away.
struct Removal {
  std::string reason{};

  friend bool operator==(const Removal&, const Removal&) = default;
};

/// Between agent and server: each shows that it is there.
struct Keepalive {
  std::uint64_t count = 0;

  friend bool operator==(const Keepalive&, const Keepalive&) = default;
};

// ---- from the server ----

/// The answer to a hello: the server knows the secret.
struct Challenge {
  Bytes nonce{};
  Bytes proof{};

  friend bool operator==(const Challenge&, const Challenge&) = default;
};

/// To who has sent the right proof.
struct Welcome {
  std::chrono::nanoseconds lease{};
  ProcessId process = 0;  // 0: to an agent
  bool elastic = false;   // the job goes on without lost processes

  friend bool operator==(const Welcome&, const Welcome&) = default;
};

/// The process or agent has no part in the job, or none any more. Nothing follows.
struct Refusal {
  std::string reason{};
  std::chrono::nanoseconds retry{};  // another hello may be accepted within that time

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

/// A new generation. The ranks are the places in `members`.
struct Roster {
  GenerationNumber generation = 0;
  std::vector<Member> members{};

  friend bool operator==(const Roster&, const Roster&) = default;
};

/// The generation is over, in disorder.
struct Interruption {
  GenerationNumber generation = 0;
  std::vector<std::int32_t> ranks{};  // that are lost
  std::string reason{};

  friend bool operator==(const Interruption&, const Interruption&) = default;
};

struct Payload {
  Bytes bytes{};

  friend bool operator==(const Payload&, const Payload&) = default;
};

/// Of a collective call: what all ranks have given, by rank.
struct Result {
  GenerationNumber generation = 0;
  std::uint64_t sequence = 0;
  std::vector<Payload> payloads{};

  friend bool operator==(const Result&, const Result&) = default;
};

/// To rank 0: membership is to change, so all should leave the generation at the next commit.
struct Announcement {
  GenerationNumber generation = 0;
  std::string reason{};

  friend bool operator==(const Announcement&, const Announcement&) = default;
};

/// A process that an agent is to start; the ranks are those of the first generation, -1 later on.
struct Launch {
  ProcessId process = 0;
  std::int32_t rank = -1;
  std::int32_t size = 0;
  std::int32_t local_rank = 0;  // also the number of the slot
  std::int32_t local_size = 0;

  friend bool operator==(const Launch&, const Launch&) = default;
};

struct Start {
  std::vector<Launch> launches{};

  friend bool operator==(const Start&, const Start&) = default;
};

/// The process must end; the agent gives it a moment to do so by itself.
struct Kill {
  ProcessId process = 0;
  std::string reason{};

  friend bool operator==(const Kill&, const Kill&) = default;
};

/// The job is over, and so are all processes; `status` is that of the job.
struct End {
  std::int32_t status = 0;
  std::string reason{};

  friend bool operator==(const End&, const End&) = default;
};

/// To agents: the signal that kolorun has got.
struct Signal {
  std::int32_t number = 0;

  friend bool operator==(const Signal&, const Signal&) = default;
};

using Message =
    std::variant<Hello, Join, Contribution, Leave, Failed, FailureReport, Exited, Removal,
                 Keepalive, Welcome, Refusal, Roster, Interruption, Result, Announcement, Start,
                 Kill, End, Signal, Begun, Completed, Challenge, Proof>;

}  // namespace kolo::internal::rendezvous
