#include "node/descriptor_exchange.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <exception>
#include <optional>
#include <utility>

#include "kolo/error.hpp"
#include "node/system_error.hpp"

namespace kolo::node {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::size_t most_descriptors = 8;

struct Address {
  sockaddr_un name{};
  socklen_t length = 0;
};

/// Of the abstract namespace: begins with a zero byte and has no file.
Address address_of(const Party& party, int index) {
  Address address;
  address.name.sun_family = AF_UNIX;
  const std::string text = fmt::format("kolo-{}-{}", party.name, index);
  if (text.size() + 1 > sizeof address.name.sun_path)
    throw BackendError("the name of a socket is too long: " + text);
  text.copy(address.name.sun_path + 1, text.size());
  address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  return address;
}

FileDescriptor open_socket(const Party& party) {
  FileDescriptor opened(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!opened.valid()) throw_system_error("socket");
  const int yes = 1;
  if (::setsockopt(opened.get(), SOL_SOCKET, SO_PASSCRED, &yes, sizeof yes) != 0)
    throw_system_error("SO_PASSCRED");
  const Address own = address_of(party, party.index);
  if (::bind(opened.get(), reinterpret_cast<const sockaddr*>(&own.name), own.length) != 0)
    throw_system_error("bind of a local socket");
  return opened;
}

// Room for the descriptors and for the sender's credentials, aligned as the kernel wants it.
union Control {
  cmsghdr align;
  std::array<char, CMSG_SPACE(most_descriptors * sizeof(int)) + CMSG_SPACE(sizeof(ucred))> bytes;
};

/// False if the receiver has no room for it now.
bool send_to(int from, const Address& to, int index, std::span<const int> descriptors) {
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
  std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size_bytes());
  if (::sendmsg(from, &message, MSG_NOSIGNAL) >= 0) return true;
  if (errno != EAGAIN && errno != EINTR && errno != ENOBUFS)
    throw_system_error("sending descriptors to another rank of this host");
  return false;
}

struct Arrived {
  int index = -1;
  Parcel parcel{};
};

/// Nothing if nothing has come.
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
      std::array<int, most_descriptors> fds{};
      const std::size_t bytes = std::min(header->cmsg_len - CMSG_LEN(0), sizeof fds);
      std::memcpy(fds.data(), CMSG_DATA(header), bytes);
      for (std::size_t i = 0; i < bytes / sizeof(int); ++i)
        arrived.parcel.descriptors.emplace_back(fds[i]);
    }
  }
  if (sender.uid != ::geteuid()) return std::nullopt;  // a stranger's
  arrived.parcel.pid = sender.pid;
  return arrived;
}

std::vector<Parcel> exchange(const Party& party, int socket, std::span<const int> descriptors,
                             steady_clock::time_point deadline) {
  std::vector<Parcel> parcels(static_cast<std::size_t>(party.size));
  int to_come = party.size - 1;
  int next = 1;  // ranks are served from the next one on, so that not all send to the same
  while (to_come > 0 || next < party.size) {
    bool moved = false;
    if (next < party.size) {
      const Address to = address_of(party, (party.index + next) % party.size);
      moved = send_to(socket, to, party.index, descriptors);
      if (moved) ++next;
    }
    while (std::optional<Arrived> arrived = receive_at(socket)) {
      if (arrived->index < 0 || arrived->index >= party.size || arrived->index == party.index)
        continue;
      Parcel& parcel = parcels[static_cast<std::size_t>(arrived->index)];
      if (parcel.pid != 0) continue;
      parcel = std::move(arrived->parcel);
      if (parcel.descriptors.size() != descriptors.size())
        throw BackendError(fmt::format("of {} file descriptors {} came", descriptors.size(),
                                       parcel.descriptors.size()));
      --to_come;
      moved = true;
    }
    if (moved) continue;
    if (steady_clock::now() > deadline)
      throw BackendError(
          fmt::format("{} of the {} ranks of this host were not heard of", to_come, party.size));
    pollfd waiting{.fd = socket, .events = POLLIN, .revents = 0};
    ::poll(&waiting, 1, next < party.size ? 1 : 100);
  }
  return parcels;
}

}  // namespace

std::vector<Parcel> exchange_descriptors(const Party& party, std::span<const int> descriptors,
                                         const std::function<void()>& barrier,
                                         std::chrono::nanoseconds patience) {
  FileDescriptor socket;
  std::exception_ptr problem;
  try {
    socket = open_socket(party);
  } catch (...) {
    problem = std::current_exception();
  }
  barrier();  // from here on all sockets are there
  if (problem) std::rethrow_exception(problem);
  return exchange(party, socket.get(), descriptors, steady_clock::now() + patience);
}

}  // namespace kolo::node
