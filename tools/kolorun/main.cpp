// SPDX-License-Identifier: Apache-2.0
// Starts the processes of a job:
//
//     kolorun -np 4 ./train
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <kolo/error.hpp>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "agent.hpp"
#include "options.hpp"
#include "output.hpp"
#include "rendezvous/tcp_server.hpp"

namespace kolorun {
namespace {

constexpr int usage_status = 2;

/// The server, in a thread of its own.
class Serving {
 public:
  Serving(const Options& options, const rendezvous::Endpoint& at)
      : server_(
            options.server, at,
            [verbose = options.verbose](kolo::internal::LogLevel level, const std::string& text) {
              if (verbose || level >= kolo::internal::LogLevel::warning)
                write_all(STDERR_FILENO, "kolorun: " + text + '\n');
            }),
        thread_([this] { end_ = server_.run(); }) {}
  Serving(const Serving&) = delete;
  Serving& operator=(const Serving&) = delete;
  ~Serving() {
    if (!thread_.joinable()) return;
    server_.stop();
    thread_.join();
  }

  [[nodiscard]] std::uint16_t port() const { return server_.port(); }
  /// Other hosts' agents may still have processes to end.
  rendezvous::JobEnd wait() {
    thread_.join();
    return end_;
  }

 private:
  rendezvous::TcpServer server_;
  rendezvous::JobEnd end_{};
  std::thread thread_;
};

/// The server, if it can be here. Another kolorun on this host may serve already.
std::unique_ptr<Serving> try_to_serve(const Options& options) {
  if (!options.rendezvous)
    return std::make_unique<Serving>(options, rendezvous::Endpoint{"127.0.0.1", 0});
  try {
    return std::make_unique<Serving>(options, *options.rendezvous);
  } catch (const kolo::BackendError&) {
    return nullptr;
  }
}

int run(const Options& options) {
  const node::FileDescriptor signals = open_signals();
  const std::unique_ptr<Serving> serving = try_to_serve(options);
  const rendezvous::Endpoint server =
      options.rendezvous ? *options.rendezvous : rendezvous::Endpoint{"127.0.0.1", serving->port()};
  int status = 0;
  bool whole = false;  // the server has ended the job, not a signal
  {
    Agent agent(options, server, serving != nullptr, signals);
    status = agent.run();
    whole = agent.was_told();
  }
  if (serving == nullptr || !whole) return status;
  const rendezvous::JobEnd end = serving->wait();
  if (!end.reason.empty()) write_all(STDERR_FILENO, fmt::format("kolorun: {}\n", end.reason));
  return end.status;
}

}  // namespace
}  // namespace kolorun

int main(int argc, char** argv) {
  try {
    const kolorun::Options options = kolorun::parse_options(argc, argv);
    if (!options.answer.empty()) {
      kolorun::write_all(STDOUT_FILENO, options.answer);
      return 0;
    }
    return kolorun::run(options);
  } catch (const kolorun::UsageError& error) {
    kolorun::write_all(STDERR_FILENO,
                       fmt::format("kolorun: {} (--help says more)\n", error.what()));
    return kolorun::usage_status;
  } catch (const std::exception& error) {
    kolorun::write_all(STDERR_FILENO, fmt::format("kolorun: {}\n", error.what()));
    return 1;
  }
}
