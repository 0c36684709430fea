// SPDX-License-Identifier: Apache-2.0
#include "node/doorbell.hpp"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <ctime>

#include "node/error_codes.hpp"

namespace kolo::internal::node {

Doorbell::EventFds Doorbell::open() {
  EventFds opened;
  for (FileDescriptor& fd : opened) {
    fd = FileDescriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!fd.valid()) throw_system_error("eventfd");
  }
  return opened;
}

void Doorbell::ring(WakeReason about) const noexcept {
  // Sequentially consistent: the fence orders the caller's stores of work before this read of the
  // word. The fence in `listen` orders the listener's store of the word before its last check for
  // work. So at least one side sees the other's store.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  constexpr auto data = static_cast<std::uint32_t>(WakeReason::data);
  const std::uint32_t word = word_->listener.load(std::memory_order_relaxed);
  if (word == value(Listener::nobody) || (about == WakeReason::data && (word & data) == 0)) return;
  // If several threads ring at once, only the one that clears the word makes the system call.
  const auto listener =
      static_cast<Listener>(word_->listener.exchange(value(Listener::nobody)) & ~data);
  if (listener != Listener::nobody) wake(listener);
}

void Doorbell::sleep(Listener listener, std::chrono::nanoseconds max) const noexcept {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(max);
  const timespec timeout{.tv_sec = std::max<std::int64_t>(seconds.count(), 0),
                         .tv_nsec = std::max<std::int64_t>((max - seconds).count(), 0)};
  // `poll` ignores negative descriptors. The session's thread waits for the gate instead of the
  // watched descriptor, since it may sleep here before it listens.
  std::array<pollfd, 2> waiting{pollfd{.fd = event_fd_of(listener), .events = POLLIN, .revents = 0},
                                pollfd{.fd = listener == Listener::thread ? gate_.get() : watched_,
                                       .events = POLLIN,
                                       .revents = 0}};
  if (::ppoll(waiting.data(), waiting.size(), &timeout, nullptr) <= 0) return;
  if ((waiting[0].revents & POLLIN) == 0) return;
  // Reset the counter, or the next sleep would end at once. The read does not block: if another
  // sleep has consumed the wake, the counter is zero already.
  std::uint64_t rung = 0;
  static_cast<void>(!::read(waiting[0].fd, &rung, sizeof rung));
}

void Doorbell::watch(int descriptor) {
  gate_ = FileDescriptor(::epoll_create1(EPOLL_CLOEXEC));
  if (!gate_.valid()) throw_system_error("epoll_create1");
  epoll_event nothing{};
  if (::epoll_ctl(gate_.get(), EPOLL_CTL_ADD, descriptor, &nothing) != 0)
    throw_system_error("epoll_ctl");
  watched_ = descriptor;
}

void Doorbell::open_gate(bool open) const {
  epoll_event readable{};
  readable.events = open ? EPOLLIN : 0U;
  static_cast<void>(::epoll_ctl(gate_.get(), EPOLL_CTL_MOD, watched_, &readable));
}

void Doorbell::wake(Listener listener) const noexcept {
  // The counter keeps a wake that precedes the sleep. The write fails only if the counter is full,
  // and then the descriptor is readable anyway.
  const std::uint64_t once = 1;
  static_cast<void>(!::write(event_fd_of(listener), &once, sizeof once));
}

}  // namespace kolo::internal::node
