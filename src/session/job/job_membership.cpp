// SPDX-License-Identifier: Apache-2.0
#include "session/job/job_membership.hpp"

#include <fmt/format.h>
#include <pthread.h>

#include <chrono>
#include <cstdlib>
#include <exception>
#include <thread>
#include <utility>

#include "base/blocked_signals.hpp"
#include "base/log.hpp"
#include "kolo/error.hpp"
#include "kolo/version.hpp"
#include "rendezvous/server/tcp_server.hpp"
#include "session/job/launcher.hpp"

namespace kolo::internal::session {
namespace {

using rendezvous::ClientOptions;

// The time in which all processes must start and connect.
constexpr std::chrono::seconds start_timeout{600};
// The time without an answer after which a rank logs the address at which it expects rank 0.
constexpr std::chrono::seconds patience_with_server{10};
// The time for kolorun to end this process, as it does when it ends itself. A process that kolorun
// could not reach then ends on its own.
constexpr std::chrono::seconds patience_without_kolorun{5};

/// The client options under torchrun or srun. Only the rank differs between processes.
ClientOptions options_without_server(const ServerlessJob& job) {
  const char* const secret = std::getenv(rendezvous::secret_variable);
  if (secret == nullptr && job.rank == 0 && !job.has_one_host())
    log(LogLevel::warning,
        fmt::format("any process that can reach port {} may join the job; to prevent this, set {} "
                    "to the same 64 hex digits on all processes",
                    job.port, rendezvous::secret_variable));
  return {.server = {job.host, job.port},
          .secret = secret == nullptr ? rendezvous::Secret{} : rendezvous::secret_from_hex(secret),
          .wanted_rank = job.rank,
          .version = std::string(version),
          .connect_timeout = start_timeout,
          .while_connecting = [at = transport::Endpoint{job.host, job.port}, said = false,
                               begin = std::chrono::steady_clock::now()]() mutable {
            if (said || std::chrono::steady_clock::now() - begin < patience_with_server) return;
            said = true;
            log(LogLevel::warning,
                fmt::format("no answer yet from {}, where rank 0 listens; it has {} s more to "
                            "start. If another program listens there, set KOLO_RENDEZVOUS_PORT",
                            transport::to_string(at),
                            std::chrono::seconds(start_timeout - patience_with_server).count()));
          }};
}

/// In the anonymous namespace, so that the shared library does not export the type of the thread's
/// function.
std::thread run_on_thread(rendezvous::TcpServer& server) {
  return std::thread([&server] { server.run(); });
}

}  // namespace

/// The rendezvous server of rank 0, on a thread of its own. If all ranks are on one host, it
/// listens on loopback only, so that no other host can reach it.
class JobMembership::OwnServer {
 public:
  OwnServer(const ServerlessJob& job, const rendezvous::Secret& secret)
      : server_({.secret = secret,
                 .version = std::string(version),
                 .np = job.size,
                 .has_agents = false,
                 .start_timeout = start_timeout},
                {job.has_one_host() ? job.host : "", job.port},
                [](LogLevel level, const std::string& text) { log(level, text); }) {
    const BlockedSignals blocked;
    thread_ = run_on_thread(server_);
  }
  ~OwnServer() {
    server_.stop();
    thread_.join();
  }
  OwnServer& operator=(OwnServer&&) = delete;

 private:
  rendezvous::TcpServer server_;
  std::thread thread_{};
};

JobMembership::JobMembership() = default;
JobMembership::~JobMembership() = default;

void JobMembership::connect() {
  if (started_by_kolorun()) {
    connection_.emplace(*rendezvous::read_environment(std::string(version)));
    by_kolorun_ = true;
    return;
  }
  const ServerlessJob job = find_serverless_job().value();
  const ClientOptions options = options_without_server(job);
  if (job.rank == 0 && !server_) try {
      server_ = std::make_unique<OwnServer>(job, options.secret);
    } catch (const BackendError& error) {
      throw BackendError(
          fmt::format("{}. Set KOLO_RENDEZVOUS_PORT, the same for all processes", error.what()));
    }
  connection_.emplace(options);
}

rendezvous::Rendezvous& JobMembership::join_generation() {
  if (completed_)
    throw InvalidArgument(
        "an elastic job cannot start a session after kolo::elastic::run returns, because other "
        "processes may have exited. Do the remaining work before the session ends");
  try {
    if (!connection_) connect();
    connection_->join(commit_, std::exchange(in_order_, false));
  } catch (const ShutDown&) {
    // A process that arrives after the others have completed the job is ended by kolorun. Wait for
    // that: nothing went wrong, so the program need not see an exception.
    if (by_kolorun_ && connection_ && connection_->came_too_late())
      std::this_thread::sleep_for(patience_without_kolorun);
    throw;
  }
  return *connection_;
}

std::string JobMembership::announced_change() {
  const std::lock_guard lock(mutex_);
  return connection_ ? connection_->announcement().value_or("") : "";
}

bool JobMembership::is_interrupted() {
  const std::lock_guard lock(mutex_);
  return connection_ && connection_->interrupted();
}

// If kolorun has ended, nothing may end this process, for example if it is the child of a shell.
// Under torchrun and srun, ranks do not need their server once the session has begun.
std::optional<Failure> JobMembership::find_end_of_kolorun() {
  if (!by_kolorun_ || !connection_->is_closed()) return std::nullopt;
  const auto now = std::chrono::steady_clock::now();
  if (!without_kolorun_since_) without_kolorun_since_ = now;
  if (now - *without_kolorun_since_ < patience_without_kolorun) return std::nullopt;
  return Failure{FailureKind::backend, "kolorun has ended: " + connection_->why_closed()};
}

std::optional<Failure> JobMembership::find_interruption() noexcept {
  try {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock || !connection_) return std::nullopt;
    if (auto end = find_end_of_kolorun()) return end;
    if (!connection_->is_elastic()) return std::nullopt;
    const auto& over = connection_->interruption();
    if (!over) return std::nullopt;
    return Failure{FailureKind::peer_left, over->reason, "",
                   RankSet::of(std::vector<int>(over->ranks.begin(), over->ranks.end()))};
  } catch (const std::exception&) {
    return std::nullopt;  // the program's next call on the connection reports the error
  }
}

void JobMembership::report_failure(const std::vector<int>& ranks, const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (connection_) connection_->report_failure(ranks, reason, /*stalled=*/false);
}

void JobMembership::report_stalled(const std::vector<int>& ranks, const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (connection_) connection_->report_failure(ranks, reason, /*stalled=*/true);
}

void JobMembership::report_awaited(const RankSet& ranks, const std::string& reason) noexcept {
  try {
    if (is_elastic()) report_stalled(ranks.to_vector(), reason);
  } catch (const std::exception& error) {
    log(LogLevel::warning,
        std::string("could not report to the rendezvous server which ranks this rank waits for: ") +
            error.what());
  }
}

void JobMembership::declare_begun() {
  const std::lock_guard lock(mutex_);
  if (connection_) connection_->declare_begun();
}

void JobMembership::declare_complete() {
  const std::lock_guard lock(mutex_);
  if (!connection_) return;
  connection_->declare_complete();
  completed_ = connection_->is_elastic();
}

void JobMembership::fail(const std::string& reason) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    if (connection_) connection_->fail(reason);
  } catch (const std::exception& error) {
    log(LogLevel::warning,
        std::string("could not report to the rendezvous server that this process failed: ") +
            error.what());
  }
}

void JobMembership::report_own_failure(const std::string& reason) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    if (by_kolorun_ && !connection_->is_elastic() && !connection_->is_closed())
      connection_->report_own_failure(reason);
  } catch (const std::exception&) {
    // Only a message is poorer.
  }
}

void JobMembership::report_missed(const RankSet& ranks, const std::string& operation) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    if (by_kolorun_ && connection_ && !connection_->is_elastic() && !connection_->is_closed())
      connection_->report_missed(ranks.to_vector(), operation);
  } catch (const std::exception&) {
    // Only a message is poorer.
  }
}

void JobMembership::leave(int status) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    if (connection_ && status == 0) connection_->leave();
    server_.reset();
  } catch (const std::exception& error) {
    log(LogLevel::warning,
        std::string("could not report to the rendezvous server that this process ended: ") +
            error.what());
  }
}

}  // namespace kolo::internal::session
