// SPDX-License-Identifier: Apache-2.0
// How a rank sleeps until there is something for it, and how others wake it.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>

#include "node/file_descriptor.hpp"

namespace kolo::internal::node {

/// The thread of a rank that listens for the bell; the others need no wake-up.
enum class Listener : std::uint32_t { nobody, thread, waiter };

/// What wakes the listener: messages only, or also the progress of other ranks with the data of a
/// batch.
enum class WakeReason : std::uint32_t { messages = 0, data = 4 };

/// In memory that every ringing rank can reach; initially zeros.
struct alignas(64) BellWord {
  std::atomic<std::uint32_t> listener;
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

/// The sleeper stores that it listens, checks once more for work, and sleeps. The ringing thread
/// stores its work, then reads whether a thread listens. Each stores one word and then reads the
/// other's, with a sequentially consistent fence in between: at least one of them sees the other's
/// store, so no work is missed. Without a listener, a ring costs a memory access and no system
/// call.
///
/// Thread-safe, but one thread at a time listens.
class Doorbell {
 public:
  using EventFds = std::array<FileDescriptor, 2>;  // eventfds of the thread and the waiter

  /// Throws BackendError.
  [[nodiscard]] static EventFds open();

  /// `word` outlives this.
  Doorbell(BellWord& word, EventFds event_fds) : word_(&word), event_fds_(std::move(event_fds)) {}

  /// From now on a readable `descriptor` counts as a ring: it ends the listener's sleep. It must
  /// stay open as long as this lives. Call this before any thread listens. Throws BackendError.
  void watch(int descriptor);

  /// Wakes the listener once; then nobody listens.
  void ring(WakeReason about = WakeReason::messages) const noexcept;

  /// From now on a ring wakes the listener. Check for work once more before `sleep`.
  void listen(Listener listener, WakeReason about) const {
    if (gate_.valid()) open_gate(listener == Listener::thread);
    word_->listener.store(value(listener) | static_cast<std::uint32_t>(about),
                          std::memory_order_relaxed);
    // Orders the store before the caller's last check, which `ring` relies on.
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  /// The bell need not be rung any more.
  void stop_listening() const {
    if (gate_.valid()) open_gate(false);
    // Relaxed: a thread that still sees the old value rings once too often.
    word_->listener.store(value(Listener::nobody), std::memory_order_relaxed);
  }
  /// Returns when the bell was rung for `listener`, at the latest after `max`.
  void sleep(Listener listener, std::chrono::nanoseconds max) const noexcept;
  /// Ends the sleep of `listener`, or its next one.
  void wake(Listener listener) const noexcept;

  [[nodiscard]] const EventFds& event_fds() const { return event_fds_; }

 private:
  static std::uint32_t value(Listener listener) { return static_cast<std::uint32_t>(listener); }
  [[nodiscard]] int event_fd_of(Listener listener) const {
    return event_fds_[listener == Listener::thread ? 0 : 1].get();
  }

  void open_gate(bool open) const;

  BellWord* word_;
  EventFds event_fds_;
  int watched_ = -1;
  // The thread may sleep already when it begins to listen, and must not be woken while it does not:
  // this is readable if `watched_` is and the thread listens.
  FileDescriptor gate_{};
};

}  // namespace kolo::internal::node
