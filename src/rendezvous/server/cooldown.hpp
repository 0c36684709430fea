// SPDX-License-Identifier: Apache-2.0
// Hosts on which processes have failed are left alone for a while, each time for longer.
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

  /// The time doubles with each failure. Processes that fail together, as they do where a host is
  /// at fault, count once; a host that was well for longer than the maximum starts anew.
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

  /// None if it has not failed.
  [[nodiscard]] std::optional<Time> until(const std::string& host) const {
    const auto found = hosts_.find(host);
    return found == hosts_.end() ? std::nullopt : std::optional(found->second.until);
  }

  /// When the next host has rested.
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
