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
  // The news that the caller has made visible come before this look at the word, as the sleeper's
  // word comes before its last look at the news. The fence is the same as in `listen`.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  constexpr auto data = static_cast<std::uint32_t>(WakeReason::data);
  const std::uint32_t heard = word_->listener.load(std::memory_order_relaxed);
  if (heard == value(Listener::nobody) || (about == WakeReason::data && (heard & data) == 0))
    return;
  // Of several that ring at once only the one that takes the word away makes the system call.
  const auto who = static_cast<Listener>(word_->listener.exchange(value(Listener::nobody)) & ~data);
  if (who != Listener::nobody) wake(who);
}

void Doorbell::sleep(Listener who, std::chrono::nanoseconds most) const noexcept {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(most);
  const timespec timeout{.tv_sec = std::max<std::int64_t>(seconds.count(), 0),
                         .tv_nsec = std::max<std::int64_t>((most - seconds).count(), 0)};
  // `poll` leaves out what is negative. The session's thread waits for the gate instead of the
  // watched descriptor: it may sleep here before it is the one that listens.
  std::array<pollfd, 2> waiting{
      pollfd{.fd = event_fd_of(who), .events = POLLIN, .revents = 0},
      pollfd{
          .fd = who == Listener::thread ? gate_.get() : watched_, .events = POLLIN, .revents = 0}};
  if (::ppoll(waiting.data(), waiting.size(), &timeout, nullptr) <= 0) return;
  if ((waiting[0].revents & POLLIN) == 0) return;
  // The counter goes back to zero, or the next sleep would end at once. It does not block: a wake
  // that another sleep has taken leaves nothing to read.
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

void Doorbell::wake(Listener who) const noexcept {
  // The counter keeps a wake that comes before the sleep. It fails only when it is full, and then
  // it is readable already.
  const std::uint64_t once = 1;
  static_cast<void>(!::write(event_fd_of(who), &once, sizeof once));
}

}  // namespace kolo::internal::node
