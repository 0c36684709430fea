// SPDX-License-Identifier: Apache-2.0
// The connection of a process to the rendezvous server. It represents the process in the job.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/session_clock.hpp"
#include "rendezvous/introduction.hpp"
#include "rendezvous/message.hpp"
#include "rendezvous/message_stream.hpp"
#include "rendezvous/rendezvous.hpp"
#include "rendezvous/standby_link.hpp"
#include "transport/socket_user.hpp"
#include "transport/sockets.hpp"

namespace kolo::internal::rendezvous {

struct ClientOptions {
  transport::Endpoint server{};
  std::optional<transport::Endpoint> standby{};  // which may take over from the server
  Secret secret{};
  ProcessId process = 0;  // the number under which an agent has started it; 0 without an agent
  int wanted_rank = -1;   // only without an agent
  std::string version{};  // Kolo's version
  std::chrono::nanoseconds connect_timeout = std::chrono::seconds(60);
  std::function<void()> while_connecting{};  // called now and then
  // A server under a flood of strangers may take this process for one and hang up: it calls again.
  std::chrono::nanoseconds call_again_for = std::chrono::seconds(10);
  // Longer than the timeouts of the server, so that the server reports the late ranks first.
  std::chrono::nanoseconds call_timeout = std::chrono::seconds(1200);
};

// The environment variables that kolorun sets for a process.
inline constexpr const char* server_variable = "KOLO_RENDEZVOUS";           // HOST:PORT
inline constexpr const char* standby_variable = "KOLO_RENDEZVOUS_STANDBY";  // HOST:PORT, if any
inline constexpr const char* secret_variable = "KOLO_RENDEZVOUS_SECRET";    // 64 hex digits
inline constexpr const char* process_variable = "KOLO_RENDEZVOUS_PROCESS";  // a number

/// Reads the options from these variables; none if kolorun has not started this process. Throws
/// InvalidArgument for invalid values.
[[nodiscard]] std::optional<ClientOptions> read_environment(const std::string& version);
[[nodiscard]] std::string to_hex(const Secret& secret);
/// Throws InvalidArgument for invalid text. The message does not contain the text, which is secret.
[[nodiscard]] Secret secret_from_hex(const std::string& text);

/// One connection for all sessions of a process. The collective calls and `check` throw PeerLeft,
/// with the ranks and the reason, once the server has reported a loss; ShutDown if the job is over;
/// BackendError if the server refuses this process, or is lost and no standby takes over in time.
/// Not thread-safe.
class TcpRendezvous : public Rendezvous {
 public:
  /// Connects to the server and completes the handshake.
  explicit TcpRendezvous(const ClientOptions& options);

  /// Waits for the next session. The rank of a process is its index in `members`. `commit`: the
  /// number of the newest commit of this process; 0 for none. `orderly`: all ranks have left the
  /// last session by agreement; otherwise this call ends that session for all of them.
  const Roster& join(std::uint64_t commit = 0, bool orderly = false);
  /// True if the job has ended without an error and this process was never in a session.
  [[nodiscard]] bool came_too_late() const {
    return end_ && end_->empty() && roster_.generation == 0;
  }
  [[nodiscard]] const Roster& roster() const { return roster_; }
  /// True if the job continues without lost processes. Then, after a loss, `join` waits for the
  /// next session.
  [[nodiscard]] bool is_elastic() const { return elastic_; }

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return static_cast<int>(roster_.members.size()); }
  [[nodiscard]] transport::Secret job_secret() const override { return options_.secret; }
  /// Unlike in the base class, the lengths of `mine` may differ.
  [[nodiscard]] std::vector<Bytes> gather_all(std::span<const std::byte> mine) override;
  /// The ranks with the same machine name in the roster. Sends no message to the server.
  [[nodiscard]] std::vector<int> ranks_of_machine() override;
  void check() override;
  /// Notes that the session has started: from now on it survives a change of the server.
  void settle() override { settled_ = true; }
  /// The reason why the server has ended the session; none if it has not.
  [[nodiscard]] const std::optional<Interruption>& interruption();
  /// True if the session or the job is over. Does not throw.
  [[nodiscard]] bool interrupted();

  /// True if the connection to the server is closed and no standby may take over, so that nothing
  /// more arrives.
  [[nodiscard]] bool is_closed();
  [[nodiscard]] const std::string& why_closed() const { return connection_.reason(); }

  /// On rank 0: the reason why all ranks should leave the session at the next commit; none if
  /// membership is not to change.
  [[nodiscard]] const std::optional<std::string>& announcement();
  /// Becomes readable when the server has sent data. `interrupted` and `announcement` read the
  /// data.
  [[nodiscard]] int descriptor() const { return connection_.descriptor(); }

  /// Asks the server to end these ranks. `stalled`: the ranks keep others waiting. The server then
  /// compares the reports of all ranks and spares ranks that wait for others themselves.
  void report_failure(const std::vector<int>& ranks, const std::string& reason, bool stalled);
  /// The session has started, and its ranks are compatible.
  void declare_begun();
  /// This process has finished all work that involves the others, and continues alone.
  void declare_complete();
  /// This process has finished its part of the job, so it does not count as lost. Waits until the
  /// message is sent.
  void leave();
  /// This process ends because of an error, which the server reports to the others.
  void fail(const std::string& reason);
  /// The session of this process ends because of an error of its own. Waits until the message is
  /// sent.
  void report_own_failure(const std::string& reason);
  /// The session of this process, or its operation in words, has failed because of these ranks.
  /// Does not wait: the session's driver calls it, for which others may wait.
  void report_missed(const std::vector<int>& ranks, const std::string& operation);

 private:
  [[nodiscard]] Hello make_hello() const;
  [[nodiscard]] Introduction make_introduction() const;
  void introduce();
  void call_again(PatientDeadline& until);
  void open_standby();
  void reopen_standby();
  void change_server();
  [[nodiscard]] bool awaits_standby();
  void send(const Message& message);
  void wait_for(const std::function<bool()>& what, const char* doing);
  void receive();
  void take(const Message& message);
  void flush();
  void throw_if_over() const;

  ClientOptions options_;
  transport::SocketUsers users_{};  // opened before a connection takes the last descriptor
  MessageStream connection_;
  Introduction introduction_;
  bool welcome_ = false;
  bool lost_ = false;  // the connection is closed, and the server has not said why
  bool elastic_ = false;
  std::unique_ptr<StandbyLink> standby_{};
  transport::SystemAddress standby_address_{};  // its length is 0 if the standby was never reached
  std::chrono::steady_clock::time_point standby_tried_{};
  std::vector<Message> unsent_{};  // those for the standby, as the server is lost
  std::optional<std::chrono::steady_clock::time_point> alone_since_{};  // no server from then on
  std::chrono::nanoseconds lease_{};
  ProcessId process_ = 0;
  GenerationNumber age_ = 0;       // the first generation of this process
  std::optional<Join> joining_{};  // as long as `join` waits
  bool settled_ = false;           // the session has started
  bool completed_ = false;
  Roster roster_{};
  GenerationNumber joined_for_ = 0;  // `join` waits for a roster of a later generation
  int rank_ = -1;
  std::uint64_t sequence_ = 0;
  std::map<std::uint64_t, std::vector<Payload>> results_{};
  std::optional<Interruption> interruption_{};
  std::optional<std::string> announcement_{};
  std::optional<std::string> refusal_{};
  std::optional<std::string> end_{};
};

}  // namespace kolo::internal::rendezvous
