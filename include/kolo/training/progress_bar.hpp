// SPDX-License-Identifier: Apache-2.0
// A progress bar on standard error.
#pragma once

#include <cstdint>
#include <string>

#include "kolo/export.hpp"

namespace kolo {

/// Options of ProgressBar.
struct ProgressBarOptions {
  std::string title{};     ///< Printed before the bar.
  std::int64_t total = 0;  ///< Total number of steps; 0: print nothing.
  bool enabled = true;     ///< Set to `kolo::rank() == 0` to print on one rank only.
};

/// Prints progress to standard error: on a terminal a bar that is redrawn, otherwise a line every
/// 10 %. Not thread-safe.
class ProgressBar {
 public:
  KOLO_EXPORT explicit ProgressBar(const ProgressBarOptions& options);

  /// Shows that `done` of `total` steps are done. `note`, for example a loss, follows the bar.
  KOLO_EXPORT void update(std::int64_t done, const std::string& note = {});
  /// Ends the line. The destructor calls it if you do not.
  KOLO_EXPORT void finish();
  KOLO_EXPORT ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

 private:
  ProgressBarOptions options_;
  bool terminal_;
  bool finished_ = false;
  std::int64_t last_tenth_ = -1;
  std::int64_t started_ns_;
  std::int64_t drawn_ns_ = 0;
};

}  // namespace kolo
