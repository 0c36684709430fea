// SPDX-License-Identifier: Apache-2.0
// The signal by which a user requests flight records.
#pragma once

#include <csignal>

namespace kolo::internal::diagnostics {

/// Counts the signal while this object lives. The previous handler is called too; a signal that
/// would have ended the process no longer does. The program may install its own handler afterwards
/// and call this one from it. One object at a time.
class RecordSignal {
 public:
  /// 0 means no signal.
  explicit RecordSignal(int signal);
  ~RecordSignal();
  RecordSignal& operator=(RecordSignal&&) = delete;

  /// True if the signal has arrived since the last call. One thread at a time may call it.
  [[nodiscard]] bool came();

 private:
  int signal_;
  unsigned seen_ = 0;
};

}  // namespace kolo::internal::diagnostics
