// SPDX-License-Identifier: Apache-2.0
#include "diagnostics/timeline.hpp"

#include <fmt/format.h>

#include <chrono>
#include <filesystem>

namespace kolo::internal::diagnostics {
namespace {

// The writer polls: a wake-up would cost the driver more than the span itself.
constexpr std::chrono::milliseconds poll_interval{10};
constexpr std::size_t max_buffered = 1 << 16;  // bytes

}  // namespace

Timeline::Timeline(const std::string& path, int rank, std::size_t capacity)
    : queue_(capacity), file_(path), thread_([this, rank] { write(rank); }) {}

Timeline::~Timeline() { close(); }

/// Every open batch reserves a place in the queue, so that its end is never dropped: viewers nest
/// the beginnings and ends of a track.
bool Timeline::push(Span span) {
  const bool begins = span.kind == Span::Kind::batch_begin;
  if (span.kind == Span::Kind::batch_end) --open_batches_;
  const bool taken = queue_.push(std::move(span), open_batches_ + (begins ? 1 : 0));
  if (begins && taken) ++open_batches_;
  return taken;
}

void Timeline::write(int rank) {
  TraceEvents events(file_, rank);
  std::uint64_t dropped = 0;
  std::unique_lock lock(mutex_);
  for (bool last = false; !last;) {
    // `stopping_` is read before the queue, so that all spans pushed before `close` are written.
    last = stopped_.wait_for(lock, poll_interval, [this] { return stopping_; });
    lock.unlock();
    queue_.take([&](const Span& span) {
      events.add(span);
      if (file_.buffered() > max_buffered) file_.flush();
    });
    if (std::exchange(dropped, queue_.dropped()) != queue_.dropped())
      events.add_dropped(Clock::now(), dropped = queue_.dropped());
    file_.flush();
    lock.lock();
  }
}

std::string Timeline::close() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stopped_.notify_one();
  if (thread_.joinable()) thread_.join();
  file_.finish();
  return file_.error();
}

std::string path_of_rank(const std::string& path, int rank) {
  std::string own = path;
  bool for_all = false;
  for (std::size_t at = own.find("%r"); at != std::string::npos; at = own.find("%r", at)) {
    own.replace(at, 2, std::to_string(rank));
    for_all = true;
  }
  return for_all || rank == 0 ? own : "";
}

std::shared_ptr<Timeline> open_timeline(const std::string& path, int rank) {
  const std::string own = path_of_rank(path, rank);
  return own.empty() ? nullptr : std::make_shared<Timeline>(own, rank);
}

std::string path_of_session(const std::string& path, std::uint64_t number) {
  if (path.empty()) return path;
  const std::filesystem::path whole(path);
  return (whole.parent_path() / whole.stem()).string() + fmt::format(".{}", number) +
         whole.extension().string();
}

}  // namespace kolo::internal::diagnostics
