// SPDX-License-Identifier: Apache-2.0
#include "kolo/training/progress_bar.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "base/process_limits.hpp"

namespace kolo {

using namespace internal;
namespace {

constexpr std::int64_t bar_width = 30;
constexpr std::int64_t redraw_every_ns = 100'000'000;

std::int64_t now_ns() {
  const auto since_start = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(since_start).count();
}

// Writes the line in one call, so that the lines of several processes do not interleave.
void print(const std::string& text) {
  const FileSizeErrors errors;  // standard error may be a file
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

std::string with_space(const std::string& text) { return text.empty() ? text : text + ' '; }

}  // namespace

ProgressBar::ProgressBar(const ProgressBarOptions& options)
    : options_(options), terminal_(::isatty(STDERR_FILENO) == 1), started_ns_(now_ns()) {}

void ProgressBar::update(std::int64_t done, const std::string& note) {
  if (!options_.enabled || finished_ || options_.total <= 0) return;
  done = std::clamp<std::int64_t>(done, 0, options_.total);
  const double fraction = static_cast<double>(done) / static_cast<double>(options_.total);
  const auto tenth = static_cast<std::int64_t>(fraction * 10.0);
  const std::int64_t now = now_ns();
  const double seconds = static_cast<double>(now - started_ns_) * 1e-9;

  if (terminal_) {
    if (done < options_.total && now - drawn_ns_ < redraw_every_ns) return;
    drawn_ns_ = now;
    const auto full = static_cast<std::size_t>(fraction * static_cast<double>(bar_width));
    const std::string bar(full, '=');
    // "\x1b[K" clears the rest of a longer previous line.
    print(fmt::format("\r{}[{:<{}}] {}/{} {:.0f} s {}\x1b[K", with_space(options_.title), bar,
                      bar_width, done, options_.total, seconds, note));
  } else if (tenth > last_tenth_ && tenth > 0) {
    print(fmt::format("{}{:3}% {}/{} {:.1f} s {}\n", with_space(options_.title), tenth * 10, done,
                      options_.total, seconds, note));
  }
  last_tenth_ = std::max(last_tenth_, tenth);
}

void ProgressBar::finish() {
  if (finished_) return;
  finished_ = true;
  if (options_.enabled && terminal_ && drawn_ns_ != 0) print("\n");
}

ProgressBar::~ProgressBar() { finish(); }

}  // namespace kolo
