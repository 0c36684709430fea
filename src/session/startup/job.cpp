// SPDX-License-Identifier: Apache-2.0
#include "session/startup/job.hpp"

#include <optional>
#include <string>
#include <utility>

#include "base/log.hpp"
#include "kolo/error.hpp"
#include "kolo/version.hpp"
#include "rendezvous/tcp_rendezvous.hpp"

namespace kolo::internal::session {
namespace {

/// Never destroyed: the server takes a connection that closes without a farewell for a loss.
struct Place {
  std::optional<rendezvous::TcpRendezvous> connection{};
  bool in_order = false;  // the last session has ended so, or there was none
};
Place& place = *new Place;

}  // namespace

rendezvous::Rendezvous& meet_job() {
  if (!place.connection) {
    const auto options = rendezvous::read_environment(std::string(version));
    if (!options)
      throw InvalidArgument(std::string("kolo::init: ") + rendezvous::server_variable +
                            " is not set, so kolorun has not started this process");
    place.connection.emplace(*options);
  }
  place.connection->join(/*commit=*/0, std::exchange(place.in_order, false));
  return *place.connection;
}

void end_generation() { place.in_order = true; }

void leave_job() noexcept {
  if (!place.connection) return;
  try {
    place.connection->leave();
  } catch (const std::exception& error) {
    log(LogLevel::warning,
        std::string("the job was not told of the end of this process: ") + error.what());
  }
}

}  // namespace kolo::internal::session
