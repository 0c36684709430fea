// SPDX-License-Identifier: Apache-2.0
#include "session/job/job.hpp"

#include <fmt/format.h>
#include <pthread.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "base/log.hpp"
#include "base/rank_set.hpp"
#include "kolo/error.hpp"
#include "kolo/version.hpp"
#include "rendezvous/server/tcp_server.hpp"
#include "rendezvous/tcp_rendezvous.hpp"
#include "session/job/launcher.hpp"

namespace kolo::internal::session {
namespace {

using rendezvous::ClientOptions;

// Until all processes have come to connect.
constexpr std::chrono::seconds start_timeout{600};
// Without an answer, a rank says where it looks for rank 0.
constexpr std::chrono::seconds patience_with_server{10};
// kolorun ends its processes when it ends. Those that it cannot reach end by themselves.
constexpr std::chrono::seconds patience_without_kolorun{5};

/// The server of a job whose launcher has none. On one host nobody else reaches it.
class OwnServer {
 public:
  OwnServer(const ServerlessJob& job, const rendezvous::Secret& secret)
      : server_({.secret = secret,
                 .version = std::string(version),
                 .np = job.size,
                 .has_agents = false,
                 .start_timeout = start_timeout},
                {job.has_one_host() ? job.host : "", job.port},
                [](LogLevel level, const std::string& text) { log(level, text); }) {
    // The program's signals are for its own threads.
    sigset_t all;
    sigset_t before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    thread_ = std::thread([this] { server_.run(); });
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
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

/// Never destroyed: the server takes a connection that closes without a farewell for a loss.
struct Place {
  std::optional<OwnServer> server{};
  std::optional<rendezvous::TcpRendezvous> connection{};
  std::uint64_t commit = 0;  // the newest
  bool in_order = false;     // the last session has ended so, or there was none
  bool completed = false;    // no other session follows
  bool by_kolorun = false;
  std::optional<std::chrono::steady_clock::time_point> alone_since{};  // without kolorun
  // Held for a call on the connection while a session may be open: its driver reads there, too.
  std::mutex mutex{};
};
Place& place = *new Place;

/// As the processes of the job all have it.
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
                fmt::format("no answer yet from {}, where rank 0 listens; the next {} s are for it "
                            "to start",
                            transport::to_string(at),
                            std::chrono::seconds(start_timeout - patience_with_server).count()));
          }};
}

void connect() {
  if (started_by_kolorun()) {
    place.connection.emplace(*rendezvous::read_environment(std::string(version)));
    place.by_kolorun = true;
    return;
  }
  const ServerlessJob job = find_serverless_job().value();
  const ClientOptions options = options_without_server(job);
  if (job.rank == 0 && !place.server) try {
      place.server.emplace(job, options.secret);
    } catch (const BackendError& error) {
      throw BackendError(
          fmt::format("{}. Set KOLO_RENDEZVOUS_PORT, the same for all processes", error.what()));
    }
  place.connection.emplace(options);
}

}  // namespace

rendezvous::Rendezvous& join_generation() {
  if (place.completed)
    throw InvalidArgument(
        "an elastic job cannot start a session after kolo::elastic::run returns, because other "
        "processes may have exited. Do the remaining work before the session ends");
  try {
    if (!place.connection) connect();
    place.connection->join(place.commit, std::exchange(place.in_order, false));
  } catch (const ShutDown&) {
    // A process that came when the others had done their work is ended by its kolorun: nothing went
    // wrong, and the program need not handle this.
    if (place.by_kolorun && place.connection && place.connection->came_too_late())
      std::this_thread::sleep_for(patience_without_kolorun);
    throw;
  }
  return *place.connection;
}

void end_generation() { place.in_order = true; }

bool is_elastic_job() { return place.connection && place.connection->is_elastic(); }

std::uint64_t generation_of_job() {
  return place.connection ? place.connection->roster().generation : 1;
}

void offer_commit(std::uint64_t number) { place.commit = number; }

std::string announced_change() {
  const std::lock_guard lock(place.mutex);
  return place.connection ? place.connection->announcement().value_or("") : "";
}

bool session_is_interrupted() {
  const std::lock_guard lock(place.mutex);
  return place.connection && place.connection->interrupted();
}

namespace {

/// kolorun is gone, and nobody ends this process: it may be the child of a shell, say. Torchrun's
/// ranks need their server no more once the session has begun.
std::optional<Failure> find_end_of_kolorun() {
  if (!place.by_kolorun || !place.connection->is_closed()) return std::nullopt;
  const auto now = std::chrono::steady_clock::now();
  if (!place.alone_since) place.alone_since = now;
  if (now - *place.alone_since < patience_without_kolorun) return std::nullopt;
  return Failure{FailureKind::backend, "kolorun has ended: " + place.connection->why_closed()};
}

}  // namespace

std::optional<Failure> find_interruption() noexcept {
  try {
    const std::unique_lock lock(place.mutex, std::try_to_lock);
    if (!lock || !place.connection) return std::nullopt;
    if (auto end = find_end_of_kolorun()) return end;
    if (!place.connection->is_elastic()) return std::nullopt;
    const auto& over = place.connection->interruption();
    if (!over) return std::nullopt;
    return Failure{FailureKind::peer_left, over->reason, "",
                   RankSet::of(std::vector<int>(over->ranks.begin(), over->ranks.end()))};
  } catch (const std::exception&) {
    return std::nullopt;  // the next call of the program reports it
  }
}

void report_failure(const std::vector<int>& ranks, const std::string& reason) {
  const std::lock_guard lock(place.mutex);
  if (place.connection) place.connection->report_failure(ranks, reason, /*stalled=*/false);
}

void report_stalled(const std::vector<int>& ranks, const std::string& reason) {
  const std::lock_guard lock(place.mutex);
  if (place.connection) place.connection->report_failure(ranks, reason, /*stalled=*/true);
}

void report_awaited(const RankSet& ranks, const std::string& reason) noexcept {
  try {
    if (is_elastic_job()) report_stalled(ranks.to_vector(), reason);
  } catch (const std::exception& error) {
    log(LogLevel::warning,
        std::string("could not report to the rendezvous server which ranks this rank waits for: ") +
            error.what());
  }
}

void declare_begun() {
  const std::lock_guard lock(place.mutex);
  if (place.connection) place.connection->declare_begun();
}

void declare_complete() {
  const std::lock_guard lock(place.mutex);
  if (!place.connection) return;
  place.connection->declare_complete();
  place.completed = place.connection->is_elastic();
}

void fail_job(const std::string& reason) noexcept {
  try {
    const std::lock_guard lock(place.mutex);
    if (place.connection) place.connection->fail(reason);
  } catch (const std::exception& error) {
    log(LogLevel::warning,
        std::string("could not report to the rendezvous server that this process failed: ") +
            error.what());
  }
}

void leave_job(int status) noexcept {
  try {
    const std::lock_guard lock(place.mutex);
    if (place.connection && status == 0) place.connection->leave();
    place.server.reset();
  } catch (const std::exception& error) {
    log(LogLevel::warning,
        std::string("could not report to the rendezvous server that this process ended: ") +
            error.what());
  }
}

}  // namespace kolo::internal::session
