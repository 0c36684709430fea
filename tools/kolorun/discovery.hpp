// SPDX-License-Identifier: Apache-2.0
// A command of the user that prints the hosts of the moment.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "hosts.hpp"
#include "node/file_descriptor.hpp"

namespace kolorun {

namespace node = kolo::internal::node;

/// Runs it every second, one at a time.
class Discovery {
 public:
  using Clock = std::chrono::steady_clock;

  /// `slots`: of a host without a number.
  Discovery(std::string script, int slots) : script_(std::move(script)), slots_(slots) {}

  /// Readable when it has printed something; negative: it does not run.
  [[nodiscard]] int descriptor() const { return output_.get(); }
  [[nodiscard]] Clock::time_point next_time() const { return next_; }
  [[nodiscard]] bool runs(pid_t pid) const { return pid == pid_; }

  /// Starts it, or ends it if it takes too long, when that is due; reads what it has printed.
  /// `problem`: as for `on_end`.
  void act(std::string& problem);
  /// It has ended, as waitpid says. The hosts that it has printed; none if it failed, about which
  /// `problem` has what to say, once.
  [[nodiscard]] std::optional<std::vector<Host>> on_end(int how, std::string& problem);
  /// The hosts that it has printed are of no use. What to say of it, once.
  [[nodiscard]] std::string news(const std::string& problem);
  /// Nobody needs its answer any more.
  void stop();

 private:
  void read();
  void start();

  std::string script_;
  int slots_;
  pid_t pid_ = -1;
  node::FileDescriptor output_{};
  std::string text_{};
  Clock::time_point next_{};  // to start it, or to end it
  std::string problem_{};     // the last one
};

}  // namespace kolorun
