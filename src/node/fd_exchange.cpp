// SPDX-License-Identifier: Apache-2.0
#include "node/fd_exchange.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <exception>
#include <optional>
#include <string>
#include <utility>

#include "base/session_clock.hpp"
#include "kolo/error.hpp"
#include "node/error_codes.hpp"
#include "node/random.hpp"

namespace kolo::internal::node {
namespace {

constexpr std::size_t max_descriptors = 8;

struct Address {
  sockaddr_un name{};
  socklen_t length = 0;
};

// This bit of an inbox's number tells senders where it is: in /dev/shm, because /tmp is full or not
// writable.
constexpr std::uint64_t in_shm = 2;

/// The directory keeps other users away, which an address in the abstract namespace cannot: a
/// descriptor in the queue is closed by its receiver, and closing one that a stranger has prepared
/// may take hours.
std::string directory_of(std::uint64_t inbox) {
  return fmt::format("{}/kolo-{:016x}", (inbox & in_shm) == 0 ? "/tmp" : "/dev/shm", inbox);
}

Address address_of(std::uint64_t inbox) {
  Address address;
  address.name.sun_family = AF_UNIX;
  const std::string text = directory_of(inbox) + "/inbox";
  static_assert(sizeof address.name.sun_path > sizeof "/dev/shm/kolo-0123456789abcdef/inbox");
  text.copy(address.name.sun_path, text.size());
  address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + text.size() + 1);
  return address;
}

void remove_names(std::uint64_t inbox) {
  ::unlink(address_of(inbox).name.sun_path);
  ::rmdir(directory_of(inbox).c_str());
}

FileDescriptor open_socket(std::uint64_t inbox) {
  FileDescriptor opened(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!opened.valid()) throw_system_error("socket");
  // SO_PASSCRED makes the kernel add the sender's credentials, which cannot be forged.
  const int yes = 1;
  if (::setsockopt(opened.get(), SOL_SOCKET, SO_PASSCRED, &yes, sizeof yes) != 0)
    throw_system_error("SO_PASSCRED");
  const Address own = address_of(inbox);
  if (::bind(opened.get(), reinterpret_cast<const sockaddr*>(&own.name), own.length) != 0)
    throw_system_error("bind of a local socket");
  return opened;
}

/// The socket of an inbox, in a new directory. Where /tmp has no room for both, e.g. because it is
/// full, they are in /dev/shm, and `inbox` is changed to say so.
FileDescriptor open_inbox(std::uint64_t& inbox) {
  for (const std::uint64_t place : {inbox & ~in_shm, inbox | in_shm}) {
    inbox = place;
    if (::mkdir(directory_of(inbox).c_str(), S_IRWXU) != 0) continue;
    try {
      return open_socket(inbox);
    } catch (...) {
      remove_names(inbox);
      if ((inbox & in_shm) != 0) throw;
    }
  }
  throw_system_error("making a directory in /tmp or /dev/shm");
}

// Room for the descriptors and the sender's credentials, aligned as the kernel requires.
union Control {
  cmsghdr align;
  std::array<char, CMSG_SPACE(max_descriptors * sizeof(int)) + CMSG_SPACE(sizeof(ucred))> bytes;
};

/// Returns 0, or the error that shows that the message cannot be sent yet.
int send_to(int from, const Address& to, int index, std::span<const int> descriptors) {
  iovec content{.iov_base = &index, .iov_len = sizeof index};
  Control control{};
  msghdr message{};
  message.msg_name = const_cast<sockaddr_un*>(&to.name);
  message.msg_namelen = to.length;
  message.msg_iov = &content;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes.data();
  message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(descriptors.size_bytes());
  std::ranges::copy(std::as_bytes(descriptors), reinterpret_cast<std::byte*>(CMSG_DATA(header)));
  if (::sendmsg(from, &message, MSG_NOSIGNAL) >= 0) return 0;
  // ETOOMANYREFS: too many descriptors of this user are in flight; receivers will soon take some.
  if (errno != EAGAIN && errno != EINTR && errno != ENOBUFS && errno != ETOOMANYREFS)
    throw_system_error("sending descriptors to another rank of this host");
  return errno;
}

struct Arrived {
  int index = -1;
  ReceivedFds fds{};
};

/// Returns nothing if no message has arrived, or one from another user.
std::optional<Arrived> receive_at(int socket) {
  Arrived arrived;
  iovec content{.iov_base = &arrived.index, .iov_len = sizeof arrived.index};
  Control control{};
  msghdr message{};
  message.msg_iov = &content;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes.data();
  message.msg_controllen = sizeof control.bytes;
  if (::recvmsg(socket, &message, MSG_CMSG_CLOEXEC) < 0) {
    if (errno == EAGAIN || errno == EINTR) return std::nullopt;
    throw_system_error("receiving descriptors from another rank of this host");
  }
  ucred sender{.pid = 0, .uid = static_cast<uid_t>(-1), .gid = 0};
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET) continue;
    if (header->cmsg_type == SCM_CREDENTIALS) {
      std::memcpy(&sender, CMSG_DATA(header), sizeof sender);
    } else if (header->cmsg_type == SCM_RIGHTS) {
      std::array<int, max_descriptors> fds{};
      const std::size_t bytes = std::min(header->cmsg_len - CMSG_LEN(0), sizeof fds);
      std::memcpy(fds.data(), CMSG_DATA(header), bytes);
      for (std::size_t i = 0; i < bytes / sizeof(int); ++i) arrived.fds.fds.emplace_back(fds[i]);
    }
  }
  if (sender.uid != ::geteuid()) return std::nullopt;
  arrived.fds.pid = sender.pid;
  return arrived;
}

/// Passes what has arrived to `receive`. The first exception becomes the `problem`.
void hand_over(Arrived arrived, std::size_t expected, const FdReceiver& receive,
               std::exception_ptr& problem) {
  if (problem) return;
  try {
    if (const std::size_t count = arrived.fds.fds.size(); count != expected)
      throw BackendError(fmt::format(
          "received {} of {} file descriptors from another rank of this host{}", count, expected,
          count < expected ? ": this process may have no more of them (ulimit -n)" : ""));
    receive(arrived.index, std::move(arrived.fds));
  } catch (...) {
    problem = std::current_exception();
  }
}

std::string late(int missing, int size, int unsent, int obstacle) {
  std::string text = fmt::format("{} of the {} ranks of this host sent nothing", missing, size);
  if (unsent > 0)
    text += fmt::format("; to {} of them nothing could be sent: {}", unsent, error_text(obstacle));
  return text;
}

}  // namespace

FdInbox::FdInbox() : number_(random_number() | 1U), socket_(open_inbox(number_)) {}

FdInbox::~FdInbox() {
  if (socket_.valid()) remove_names(number_);  // not after a move
}

void exchange_fds(const FdInbox& own, const FdExchangeGroup& group,
                  std::span<const int> descriptors, const FdReceiver& receive,
                  const std::function<void()>& while_waiting, std::chrono::nanoseconds timeout) {
  PatientDeadline deadline(timeout);
  const auto size = static_cast<int>(group.inboxes.size());
  std::vector<bool> received(group.inboxes.size());
  received[static_cast<std::size_t>(group.index)] = true;
  std::exception_ptr problem;  // thrown once the other ranks have what they need
  int missing = size - 1;
  int obstacle = 0;  // the last error of a send; 0: none
  int next = 1;      // each rank starts with its successor, to spread the load over the inboxes
  while (missing > 0 || next < size) {
    bool moved = false;
    if (next < size) {
      const auto to = static_cast<std::size_t>((group.index + next) % size);
      obstacle = send_to(own.fd(), address_of(group.inboxes[to]), group.index, descriptors);
      moved = obstacle == 0;
      if (moved) ++next;
    }
    while (std::optional<Arrived> arrived = receive_at(own.fd())) {
      const auto index = static_cast<std::size_t>(arrived->index);
      if (arrived->index < 0 || arrived->index >= size || received[index]) continue;
      received[index] = moved = true;
      --missing;
      hand_over(std::move(*arrived), descriptors.size(), receive, problem);
    }
    if (moved) continue;
    if (deadline.is_over()) throw BackendError(late(missing, size, size - next, obstacle));
    while_waiting();
    // A full inbox does not signal when it has room again, so sending is retried every millisecond.
    pollfd waiting{.fd = own.fd(), .events = POLLIN, .revents = 0};
    ::poll(&waiting, 1, next < size ? 1 : 5);
  }
  if (problem) std::rethrow_exception(problem);
}

}  // namespace kolo::internal::node
