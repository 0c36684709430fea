// Progress on one rank.
#pragma once

#include <cstdint>
#include <string>

#include "kolo/export.hpp"

namespace kolo {

struct ProgressBarOptions {
  std::string title{};     ///< Printed before the bar.
  std::int64_t total = 0;  ///< Steps to be done.
  bool enabled = true;     ///< Give `kolo::rank() == 0` here, so that one rank speaks.
};

/// Progress on standard error: a bar that is redrawn on a terminal, else a line every tenth of the
/// way. Not thread-safe.
class ProgressBar {
 public:
  KOLO_EXPORT explicit ProgressBar(const ProgressBarOptions& options);

  /// `done` of `total` steps are done; `note` follows the bar (a loss, say).
  KOLO_EXPORT void update(std::int64_t done, const std::string& note = {});
  /// Ends the line. Called by the destructor if it was not called before.
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
