// SPDX-License-Identifier: Apache-2.0
#include "timeouts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <string>

#include "base/settings.hpp"

namespace kolorun {
namespace {

constexpr const char* peer_timeout_variable = "KOLO_PEER_TIMEOUT";

double seconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

/// The value that the processes will have, if the user has given one.
std::optional<double> given_peer_timeout(const Options& options) {
  const std::string prefix = std::string(peer_timeout_variable) + '=';
  const char* value = std::getenv(peer_timeout_variable);
  for (const std::string& variable : options.variables)
    if (variable.starts_with(prefix)) value = variable.c_str() + prefix.size();
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::strtod(value, nullptr);  // the session refuses what is no number
}

/// A host that is cut off for a shorter time than the lease may come back.
void order_peer_timeout(Options& options) {
  const double lease = seconds(options.server.lease);
  if (const std::optional<double> given = given_peer_timeout(options)) {
    if (*given > 0.0 && *given <= lease)
      options.warnings.push_back(
          fmt::format("{}={} is not longer than --lease {}: the ranks give up a host that kolorun "
                      "still waits for",
                      peer_timeout_variable, *given, lease));
    return;
  }
  const double needed = 1.5 * lease;
  if (needed > seconds(kolo::internal::Settings().peer_timeout))
    options.variables.push_back(fmt::format("{}={}", peer_timeout_variable, needed));
}

}  // namespace

void order_timeouts(const Flags& flags, Options& options) {
  order_peer_timeout(options);
  const rendezvous::ServerOptions& server = options.server;
  const bool ends = options.timeout.count() > 0;
  const Flags defaults;
  if (server.elastic && server.min_cooldown >= server.elastic_timeout)
    options.warnings.push_back(
        fmt::format("--cooldown {} is not shorter than --elastic-timeout {}: a job that has fewer "
                    "than --min-np processes ends before a lost one starts again",
                    flags.cooldown, flags.elastic_timeout));
  if (ends && flags.start_timeout != defaults.start_timeout &&
      server.start_timeout >= options.timeout)
    options.warnings.push_back(
        fmt::format("--start-timeout {} is not shorter than --timeout {}: processes that do not "
                    "start are reported as a job that takes too long",
                    flags.start_timeout, flags.timeout));
  if (ends && server.elastic && flags.elastic_timeout != defaults.elastic_timeout &&
      server.elastic_timeout >= options.timeout)
    options.warnings.push_back(
        fmt::format("--elastic-timeout {} is not shorter than --timeout {}: processes that are "
                    "missing are reported as a job that takes too long",
                    flags.elastic_timeout, flags.timeout));
}

}  // namespace kolorun
