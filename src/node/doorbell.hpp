// How a rank sleeps until there is something for it, and how others wake it.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>

#include "node/file_descriptor.hpp"

namespace kolo::internal::node {

/// Who of a rank's threads listens for the bell. The others need not be told of anything.
enum class Listener : std::uint32_t { nobody, thread, waiter };

/// What the listener wants to hear of: messages only, or also that others have come further with
/// the data of a batch that it takes part in.
enum class WakeReason : std::uint32_t { messages = 0, data = 4 };

/// In memory that all who ring can reach; zeros are a good beginning.
struct alignas(64) BellWord {
  std::atomic<std::uint32_t> listener;
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

/// The sleeper writes that it listens, looks once more whether there is something, and sleeps. The
/// one that rings makes its news visible, then reads whether anybody listens. Each writes one word
/// and then reads the other's, with a sequentially consistent fence in between: so at least one of
/// them sees what the other wrote, and no news is missed. A bell that nobody listens for costs a
/// memory access, no system call.
///
/// Thread-safe, but one thread at a time listens.
class Doorbell {
 public:
  using EventFds = std::array<FileDescriptor, 2>;  // eventfds of the thread and the waiter

  /// Throws BackendError.
  [[nodiscard]] static EventFds open();

  /// `word` outlives this.
  Doorbell(BellWord& word, EventFds event_fds) : word_(&word), event_fds_(std::move(event_fds)) {}

  /// From now on, whenever `descriptor` is readable, that is as if somebody rang: it ends the sleep
  /// of who listens. It stays open as long as this lives. To be called before anybody listens.
  /// Throws BackendError.
  void watch(int descriptor);

  /// Wakes who listens, once: then nobody does.
  void ring(WakeReason about = WakeReason::messages) const noexcept;

  /// From now on the bell is heard. Look once more before `sleep`.
  void listen(Listener who, WakeReason about) const {
    if (gate_.valid()) open_gate(who == Listener::thread);
    word_->listener.store(value(who) | static_cast<std::uint32_t>(about),
                          std::memory_order_relaxed);
    // Orders the store before the caller's last look, which `ring` relies on.
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  /// The bell need not be rung any more.
  void stop_listening() const {
    if (gate_.valid()) open_gate(false);
    // No order is needed: whoever still sees the old value rings once too often.
    word_->listener.store(value(Listener::nobody), std::memory_order_relaxed);
  }
  /// Returns when the bell was rung for `who`, at most after `most`.
  void sleep(Listener who, std::chrono::nanoseconds most) const noexcept;
  /// Ends the sleep of `who`, or its next one.
  void wake(Listener who) const noexcept;

  [[nodiscard]] const EventFds& event_fds() const { return event_fds_; }

 private:
  static std::uint32_t value(Listener who) { return static_cast<std::uint32_t>(who); }
  [[nodiscard]] int event_fd_of(Listener who) const {
    return event_fds_[who == Listener::thread ? 0 : 1].get();
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
