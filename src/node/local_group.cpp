// SPDX-License-Identifier: Apache-2.0
#include "node/local_group.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <optional>
#include <utility>

#include "kolo/error.hpp"
#include "node/error_codes.hpp"
#include "node/process_state.hpp"

namespace kolo::internal::node {
namespace {

BellWord& word_in(const SharedMemory& segment) {
  return *reinterpret_cast<BellWord*>(segment.data());
}

[[noreturn]] void throw_not_seen(int error) {
  if (error == EMFILE || error == ENFILE)
    throw BackendError(fmt::format(
        "no file descriptor is left for the process of another rank of this host: {}. Raise the "
        "limit{}",
        error_text(error), error == EMFILE ? " of open files, `ulimit -n`" : ", fs.file-max"));
  throw BackendError(
      "the process of another rank of this host cannot be seen: it may be in another PID "
      "namespace, or /proc may not be mounted. Start the containers of a host with one PID "
      "namespace");
}

/// Not valid where there are none: in kernels before 5.3, and under some seccomp filters.
FileDescriptor open_process(pid_t pid) {
  return FileDescriptor(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
}

}  // namespace

OwnMemory::OwnMemory(std::size_t bytes, std::size_t heap_bytes)
    : OwnMemory(bytes, std::make_shared<SharedHeap>(heap_bytes)) {}

OwnMemory::OwnMemory(std::size_t bytes, std::shared_ptr<SharedHeap> heap)
    : segment_(SharedMemory::create(LocalGroup::header_bytes + bytes)),
      bell_(Doorbell::open()),
      heap_(std::move(heap)) {}

LocalGroup::Mapped LocalGroup::map(ReceivedFds received, std::size_t bytes) {
  // Not seen here, it would count as ended at once, or its end would never be noticed.
  FileDescriptor process = open_process(received.pid);
  int error = errno;
  const std::uint64_t started = start_of_process(received.pid);
  if (error != EMFILE && error != ENFILE) error = errno;
  if (received.pid <= 0 || (!process.valid() && started == 0)) throw_not_seen(error);
  std::vector<FileDescriptor>& sent = received.fds;
  SharedMemory segment = SharedMemory::map(sent[0], bytes);
  BellWord& word = word_in(segment);
  return {std::move(segment),
          Doorbell(word, {std::move(sent[1]), std::move(sent[2])}),
          SharedMemory::map(sent[3]),
          std::move(process),
          received.pid,
          started};
}

LocalGroup::LocalGroup(OwnMemory own, const FdExchangeGroup& group,
                       const std::function<void()>& while_waiting)
    : index_(group.index), own_heap_(std::move(own.heap_)) {
  const std::array<int, 4> descriptors{own.segment_.fd(), own.bell_[0].get(), own.bell_[1].get(),
                                       own_heap_->fd()};
  const std::size_t bytes = own.segment_.size();
  std::vector<std::optional<Mapped>> mapped(group.inboxes.size());
  exchange_fds(
      own.inbox_, group, descriptors,
      [&](int index, ReceivedFds received) {
        mapped[static_cast<std::size_t>(index)] = map(std::move(received), bytes);
      },
      while_waiting, timeout);
  BellWord& word = word_in(own.segment_);
  mapped[static_cast<std::size_t>(index_)] = {
      std::move(own.segment_), Doorbell(word, std::move(own.bell_)), {}, {}, ::getpid(), {}};
  for (std::optional<Mapped>& neighbor : mapped) neighbors_.push_back(std::move(*neighbor));
}

std::span<std::byte> LocalGroup::heap(int index) const {
  if (index == index_) return own_heap_->memory();
  const SharedMemory& heap = neighbor(index).heap;
  return {heap.data(), heap.size()};
}

std::vector<FileDescriptor> LocalGroup::others() const {
  std::vector<FileDescriptor> others;
  for (const Mapped& neighbor : neighbors_)
    if (neighbor.process.valid())
      others.emplace_back(::fcntl(neighbor.process.get(), F_DUPFD_CLOEXEC, 0));
  return others;
}

std::vector<int> LocalGroup::ended() const {
  std::vector<pollfd> processes;
  for (const Mapped& neighbor : neighbors_)
    processes.push_back({.fd = neighbor.process.get(), .events = POLLIN, .revents = 0});
  ::poll(processes.data(), processes.size(), 0);
  std::vector<int> ended;
  for (int index = 0; index < size(); ++index) {
    const Mapped& process = neighbor(index);
    const bool has_ended = process.process.valid() || index == index_
                               ? (processes[static_cast<std::size_t>(index)].revents & POLLIN) != 0
                               : process_ended(process.pid, process.started);
    if (has_ended) ended.push_back(index);
  }
  return ended;
}

}  // namespace kolo::internal::node
