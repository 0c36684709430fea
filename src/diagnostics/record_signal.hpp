// SPDX-License-Identifier: Apache-2.0
// A signal by which a user asks for flight records.
#pragma once

#include <csignal>
#include <optional>
#include <string_view>

namespace kolo::internal::diagnostics {

/// While it lives, the signal is counted. The handler that was there before is called too; a
/// signal that would have ended the process does not. The program may install a handler of its own
/// afterwards, and call this one from it. One at a time.
class RecordSignal {
 public:
  /// 0: no signal.
  explicit RecordSignal(int signal);
  ~RecordSignal();
  RecordSignal& operator=(RecordSignal&&) = delete;

  /// True if it came since this was asked last. By one thread at a time.
  [[nodiscard]] bool came();

 private:
  int signal_;
  unsigned seen_ = 0;
};

/// "SIGUSR1", "USR2", "HUP", "QUIT" or "WINCH", in capitals.
[[nodiscard]] std::optional<int> parse_signal(std::string_view text);

}  // namespace kolo::internal::diagnostics
