// SPDX-License-Identifier: Apache-2.0
#include "serving.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <string>

#include "node/new_descriptor.hpp"
#include "output/writing.hpp"

namespace kolorun {
namespace {

/// Debian's /etc/hosts has a loopback address for a host's own name, which no other host can reach.
transport::Endpoint to_listen_at(const transport::Endpoint& at) {
  const bool is_name =
      !at.host.empty() && at.host.find("localhost") == std::string::npos && !is_address(at.host);
  const bool is_own = is_name && (is_this_host(at.host) || transport::is_loopback(at.host));
  return is_own ? transport::Endpoint{"", at.port} : at;
}

node::FileDescriptor new_event() {
  return node::new_descriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "eventfd");
}

void raise_event(const node::FileDescriptor& event) {
  const std::uint64_t one = 1;
  static_cast<void>(::write(event.get(), &one, sizeof one));
}

}  // namespace

Serving::Serving(const Options& options, const transport::Endpoint& at)
    : agents_{.missing_slots = options.server.max_np},
      agents_event_(new_event()),
      ruling_(new_event()),
      server_(
          options.server, to_listen_at(at),
          [verbose = options.verbose](kolo::internal::LogLevel level, const std::string& text) {
            if (verbose || level >= kolo::internal::LogLevel::warning)
              write_all(STDERR_FILENO, "kolorun: " + text + '\n');
          },
          [this](const rendezvous::AgentsChanged& changed) {
            const std::lock_guard lock(mutex_);
            agents_ = changed;
            raise_event(agents_event_);
          },
          [this] {
            rules_ = true;
            raise_event(ruling_);
          }),
      done_(new_event()),
      thread_([this] {
        end_ = server_.run();
        raise_event(done_);
      }) {}

Serving::~Serving() {
  if (!thread_.joinable()) return;
  server_.stop();
  thread_.join();
}

void Serving::pass_signal(int number) {
  server_.call([number](rendezvous::Server& server, rendezvous::Time now) {
    server.on_signal(number, now);
  });
}

void Serving::remove_host(const std::string& name, const std::string& reason) {
  server_.call([name, reason](rendezvous::Server& server, rendezvous::Time now) {
    server.remove_host(name, reason, now);
  });
}

void Serving::keep_host(const std::string& name) {
  server_.call(
      [name](rendezvous::Server& server, rendezvous::Time now) { server.keep_host(name, now); });
}

void Serving::end(int status, const std::string& reason) {
  server_.call([status, reason](rendezvous::Server& server, rendezvous::Time now) {
    server.end(status, reason, now);
  });
}

void Serving::end_by_host(const std::string& host, int status, const std::string& reason) {
  server_.call([host, status, reason](rendezvous::Server& server, rendezvous::Time now) {
    server.end_by_host(host, status, reason, now);
  });
}

rendezvous::AgentsChanged Serving::agents() {
  const std::lock_guard lock(mutex_);
  std::uint64_t count = 0;
  static_cast<void>(::read(agents_event_.get(), &count, sizeof count));
  return agents_;
}

rendezvous::JobEnd Serving::wait() {
  thread_.join();
  return end_;
}

}  // namespace kolorun
