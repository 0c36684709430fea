// SPDX-License-Identifier: Apache-2.0
// A process's place in the job, held by its connection to the rendezvous server.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rendezvous/challenge.hpp"
#include "rendezvous/message_stream.hpp"
#include "rendezvous/rendezvous.hpp"
#include "transport/sockets.hpp"

namespace kolo::internal::rendezvous {

struct ClientOptions {
  transport::Endpoint server{};
  Secret secret{};
  ProcessId process = 0;  // by which the agent has started it; 0: without an agent
  int wanted_rank = -1;   // without an agent
  std::string version{};  // of Kolo
  std::chrono::nanoseconds connect_timeout = std::chrono::seconds(60);
  std::function<void()> while_connecting{};                            // called between attempts
  std::chrono::nanoseconds call_timeout = std::chrono::seconds(1200);  // beyond the server's own
};

// The variables that kolorun gives to a process.
inline constexpr const char* server_variable = "KOLO_RENDEZVOUS";           // HOST:PORT
inline constexpr const char* secret_variable = "KOLO_RENDEZVOUS_SECRET";    // 64 hex digits
inline constexpr const char* process_variable = "KOLO_RENDEZVOUS_PROCESS";  // a number

/// From these variables; none if kolorun has not started this process. Throws InvalidArgument for
/// values that cannot be used.
[[nodiscard]] std::optional<ClientOptions> read_environment(const std::string& version);
[[nodiscard]] std::string to_hex(const Secret& secret);
/// Throws InvalidArgument, which does not show the text.
[[nodiscard]] Secret secret_from_hex(const std::string& text);

/// One connection for all sessions of a process. Every call throws PeerLeft, with the ranks and the
/// reason, as soon as the server tells of a loss; ShutDown if the job is over; BackendError if the
/// server refuses this process, or is gone. Not thread-safe.
class TcpRendezvous : public Rendezvous {
 public:
  /// Connects, and completes the handshake.
  explicit TcpRendezvous(const ClientOptions& options);

  /// Waits for the next session, whose ranks are the places in `members`. `commit`: the number of
  /// this process's newest one, 0 for none. `orderly`: all ranks have left the last session by
  /// agreement; otherwise this call ends it for all.
  const Roster& join(std::uint64_t commit = 0, bool orderly = false);
  /// The job has ended in order, and this process had no session.
  [[nodiscard]] bool came_too_late() const {
    return end_ && end_->empty() && roster_.generation == 0;
  }
  [[nodiscard]] const Roster& roster() const { return roster_; }
  /// The job goes on without lost processes: after a loss, `join` waits for the next session.
  [[nodiscard]] bool is_elastic() const { return elastic_; }

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return static_cast<int>(roster_.members.size()); }
  /// The ranks' parts may differ in length.
  [[nodiscard]] std::vector<Bytes> gather_all(std::span<const std::byte> mine) override;
  /// Those of one kernel and its namespaces of network and processes; the server is not asked.
  [[nodiscard]] std::vector<int> ranks_of_machine() override;
  void check() override;
  /// The server delivers what it has without a call of any rank.
  void settle() override {}
  /// Why the session is over, if the server has ended it.
  [[nodiscard]] const std::optional<Interruption>& interruption();
  /// True if the session is over, without a throw.
  [[nodiscard]] bool interrupted();

  /// The connection to the server is closed, and nothing more comes.
  [[nodiscard]] bool is_closed();
  [[nodiscard]] const std::string& why_closed() const { return connection_.reason(); }

  /// On rank 0, of the latest session: why all should leave it at the next commit; none if nothing
  /// is to change.
  [[nodiscard]] const std::optional<std::string>& announcement();
  /// Readable when the server has sent something; `interrupted` and `announcement` read it.
  [[nodiscard]] int descriptor() const { return connection_.descriptor(); }

  /// These ranks are to be ended. `stalled`: they keep others waiting; those of them that say that
  /// they wait for others themselves stay.
  void report_failure(const std::vector<int>& ranks, const std::string& reason, bool stalled);
  /// The session has started, and its ranks fit together.
  void declare_begun();
  /// This process does nothing more with the others, and goes on by itself.
  void declare_complete();
  /// This process has done its part of the job; others do not miss it. Waits until that is sent.
  void leave();
  /// This process ends because of an error, which the others are told.
  void fail(const std::string& reason);

 private:
  void wait_for(const std::function<bool()>& what, const char* doing);
  void receive();
  void take(const Message& message);
  void flush();
  void throw_if_over() const;

  ClientOptions options_;
  MessageStream connection_;
  std::unique_ptr<transport::Handshake> handshake_;
  bool welcome_ = false;
  bool elastic_ = false;
  ProcessId process_ = 0;
  Roster roster_{};
  GenerationNumber joined_for_ = 0;  // a roster beyond this generation is awaited
  int rank_ = -1;
  std::uint64_t sequence_ = 0;
  std::map<std::uint64_t, std::vector<Payload>> results_{};
  std::optional<Interruption> interruption_{};
  std::optional<std::string> announcement_{};
  std::optional<std::string> refusal_{};
  std::optional<std::string> end_{};
};

}  // namespace kolo::internal::rendezvous
