// SPDX-License-Identifier: Apache-2.0
#include "node/local_group.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <utility>

#include "node/error_codes.hpp"

namespace kolo::internal::node {
namespace {

BellWord& word_in(const SharedMemory& segment) {
  return *reinterpret_cast<BellWord*>(segment.data());
}

FileDescriptor open_process(pid_t pid) {
  FileDescriptor process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!process.valid()) throw_system_error("pidfd_open of another rank of this host");
  return process;
}

}  // namespace

OwnMemory::OwnMemory(std::size_t bytes, std::size_t heap_bytes)
    : segment_(SharedMemory::create(LocalGroup::header_bytes + bytes)),
      bell_(Doorbell::open()),
      heap_(std::make_shared<SharedHeap>(heap_bytes)) {}

LocalGroup::Mapped LocalGroup::map(ReceivedFds received, std::size_t bytes,
                                   std::size_t heap_bytes) {
  std::vector<FileDescriptor>& sent = received.fds;
  SharedMemory segment = SharedMemory::map(std::move(sent[0]), bytes);
  BellWord& word = word_in(segment);
  return {std::move(segment), Doorbell(word, {std::move(sent[1]), std::move(sent[2])}),
          SharedMemory::map(std::move(sent[3]), heap_bytes), open_process(received.pid),
          received.pid};
}

LocalGroup::LocalGroup(OwnMemory own, const FdExchangeGroup& group,
                       const std::function<void()>& while_waiting)
    : index_(group.index), own_heap_(std::move(own.heap_)) {
  const std::array<int, 4> descriptors{own.segment_.fd(), own.bell_[0].get(), own.bell_[1].get(),
                                       own_heap_->fd()};
  std::vector<ReceivedFds> received =
      exchange_fds(own.inbox_, group, descriptors, while_waiting, timeout);
  const std::size_t bytes = own.segment_.size();
  for (int index = 0; index < static_cast<int>(received.size()); ++index) {
    if (index == index_) {
      BellWord& word = word_in(own.segment_);
      neighbors_.push_back(
          {std::move(own.segment_), Doorbell(word, std::move(own.bell_)), {}, {}, ::getpid()});
    } else {
      neighbors_.push_back(map(std::move(received[static_cast<std::size_t>(index)]), bytes,
                               own_heap_->memory().size()));
    }
  }
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
  std::vector<int> ended;
  if (::poll(processes.data(), processes.size(), 0) <= 0) return ended;
  for (std::size_t i = 0; i < processes.size(); ++i)
    if ((processes[i].revents & POLLIN) != 0) ended.push_back(static_cast<int>(i));
  return ended;
}

}  // namespace kolo::internal::node
