// SPDX-License-Identifier: Apache-2.0
// How a rank sleeps until it has work, and how other threads and ranks wake it.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>

#include "node/file_descriptor.hpp"

namespace kolo::internal::node {

/// The thread of a rank that a ring wakes: the session's own thread (`thread`), or a thread of the
/// program that waits for an operation (`waiter`). Threads that do not listen need no wake-up.
enum class Listener : std::uint32_t { nobody, thread, waiter };

/// The events that wake the listener: only messages, or also the progress of other ranks with the
/// data of a batch.
enum class WakeReason : std::uint32_t { messages = 0, data = 4 };

/// The word that tells whether a thread listens. It lies in memory that every ringing rank maps,
/// and is initially zero.
struct alignas(64) BellWord {
  std::atomic<std::uint32_t> listener;
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

/// Lets one thread of a rank, the listener, sleep until another thread or rank rings. The listener
/// stores that it listens, checks once more for work, and sleeps. The ringing thread stores its
/// work, then reads whether a thread listens. Each stores one word and then reads the other's, with
/// a sequentially consistent fence in between: at least one of them sees the other's store, so no
/// work is missed. Without a listener, a ring costs a memory access and no system call.
///
/// Thread-safe, but one thread at a time listens.
class Doorbell {
 public:
  using EventFds = std::array<FileDescriptor, 2>;  // the eventfds of the thread and of the waiter

  /// Throws BackendError.
  [[nodiscard]] static EventFds open();

  /// `word` must outlive the doorbell.
  Doorbell(BellWord& word, EventFds event_fds) : word_(&word), event_fds_(std::move(event_fds)) {}

  /// From now on a readable `descriptor` counts as a ring and ends the listener's sleep. It must
  /// stay open as long as the doorbell lives. Call this before any thread listens. Throws
  /// BackendError.
  void watch(int descriptor);

  /// Wakes the listener once; afterwards no thread listens.
  void ring(WakeReason about = WakeReason::messages) const noexcept;

  /// From now on a ring wakes the listener. Check for work once more between this and `sleep`.
  void listen(Listener listener, WakeReason about) const {
    if (gate_.valid()) open_gate(listener == Listener::thread);
    word_->listener.store(value(listener) | static_cast<std::uint32_t>(about),
                          std::memory_order_relaxed);
    // Orders the store before the caller's last check for work; `ring` relies on it.
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  /// From now on rings need not wake this rank.
  void stop_listening() const {
    if (gate_.valid()) open_gate(false);
    // Relaxed: a thread that still sees the old value rings once too often.
    word_->listener.store(value(Listener::nobody), std::memory_order_relaxed);
  }
  /// Returns when the bell was rung for `listener`, or after `max`.
  void sleep(Listener listener, std::chrono::nanoseconds max) const noexcept;
  /// Ends the current sleep of `listener`, or the next one.
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
  // `gate_`: an epoll descriptor that is readable if `watched_` is and the thread listens. The
  // thread may be asleep already when it begins to listen, and must not wake while it does not
  // listen.
  FileDescriptor gate_{};
};

}  // namespace kolo::internal::node
