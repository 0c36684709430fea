// SPDX-License-Identifier: Apache-2.0
// The host discovery script: a command of the user that prints the current hosts.
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

/// Runs the script every second, one run at a time.
class Discovery {
 public:
  using Clock = std::chrono::steady_clock;

  /// `slots`: the number of slots of a host printed without one.
  Discovery(std::string script, int slots) : script_(std::move(script)), slots_(slots) {}

  /// Readable when the script has printed something; negative while it does not run.
  [[nodiscard]] int descriptor() const { return output_.get(); }
  [[nodiscard]] Clock::time_point next_time() const { return next_; }
  [[nodiscard]] bool runs(pid_t pid) const { return pid == pid_; }

  /// Starts the script when it is due, ends it if it takes too long, and reads its output.
  /// `problem` is set as by `on_end`.
  void act(std::string& problem);
  /// Handles the end of the script with the status from waitpid. Returns the hosts that it has
  /// printed. If it failed, returns none and sets `problem` to a message, unless the last message
  /// was the same.
  [[nodiscard]] std::optional<std::vector<Host>> on_end(int how, std::string& problem);
  /// Returns a message about printed hosts that cannot be used, or "" if the last message was the
  /// same.
  [[nodiscard]] std::string news(const std::string& problem);
  /// Kills the script; its output is not needed any more.
  void stop();

 private:
  void read();
  void start();

  std::string script_;
  int slots_;
  pid_t pid_ = -1;
  node::FileDescriptor output_{};
  std::string text_{};
  Clock::time_point next_{};  // time to start the script, or to end it
  std::string problem_{};     // the last message
};

}  // namespace kolorun
