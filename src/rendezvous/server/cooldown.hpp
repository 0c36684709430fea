// SPDX-License-Identifier: Apache-2.0
// The cooldown of hosts on which processes have failed: the server starts no processes there for a
// while, and longer after each further failure.
#pragma once

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <string>

namespace kolo::internal::rendezvous {

class Cooldown {
 public:
  using Time = std::chrono::nanoseconds;

  Cooldown(Time min, Time max) : min_(min), max_(std::max(min, max)) {}

  /// Starts the cooldown of a host. Its length doubles with each failure. Failures during a
  /// cooldown do not count, since all processes of a faulty host fail together. If more than the
  /// maximum has passed since the last cooldown, the length starts from the minimum again.
  void fail(const std::string& host, Time now) {
    Rest& rest = hosts_[host];
    if (now < rest.until) return;
    const bool forgiven = rest.length == Time{} || now - rest.until > max_;
    rest.length = forgiven ? min_ : std::min(2 * rest.length, max_);
    rest.until = now + rest.length;
  }

  [[nodiscard]] bool rests(const std::string& host, Time now) const {
    const auto found = hosts_.find(host);
    return found != hosts_.end() && now < found->second.until;
  }

  /// The end of the host's last cooldown; none if the host has not failed.
  [[nodiscard]] std::optional<Time> until(const std::string& host) const {
    const auto found = hosts_.find(host);
    return found == hosts_.end() ? std::nullopt : std::optional(found->second.until);
  }

  /// The time at which the next cooldown ends; none if no host is in one.
  [[nodiscard]] std::optional<Time> next(Time now) const {
    std::optional<Time> next;
    for (const auto& [host, rest] : hosts_)
      if (rest.until > now && (!next || rest.until < *next)) next = rest.until;
    return next;
  }

 private:
  struct Rest {
    Time until{};
    Time length{};
  };
  Time min_;
  Time max_;
  std::map<std::string, Rest> hosts_{};
};

}  // namespace kolo::internal::rendezvous
