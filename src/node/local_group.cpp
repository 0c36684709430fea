// SPDX-License-Identifier: Apache-2.0
#include "node/local_group.hpp"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <optional>
#include <utility>

namespace kolo::internal::node {
namespace {

BellWord& word_in(const SharedMemory& segment) {
  return *reinterpret_cast<BellWord*>(segment.data());
}

}  // namespace

OwnMemory::OwnMemory(std::size_t bytes, std::size_t heap_bytes)
    : segment_(SharedMemory::create(LocalGroup::header_bytes + bytes)),
      bell_(Doorbell::open()),
      heap_(std::make_shared<SharedHeap>(heap_bytes)) {}

LocalGroup::Mapped LocalGroup::map(ReceivedFds received, std::size_t bytes) {
  OtherProcess process(received.pid);
  std::vector<FileDescriptor>& sent = received.fds;
  SharedMemory segment = SharedMemory::map(sent[0], bytes);
  BellWord& word = word_in(segment);
  return {std::move(segment), Doorbell(word, {std::move(sent[1]), std::move(sent[2])}),
          SharedMemory::map(sent[3]), std::move(process)};
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
      std::move(own.segment_), Doorbell(word, std::move(own.bell_)), {}, {}};
  for (std::optional<Mapped>& neighbor : mapped) neighbors_.push_back(std::move(*neighbor));
}

pid_t LocalGroup::process(int index) const {
  return index == index_ ? ::getpid() : neighbor(index).process.pid();
}

std::span<std::byte> LocalGroup::heap(int index) const {
  if (index == index_) return own_heap_->memory();
  const SharedMemory& heap = neighbor(index).heap;
  return {heap.data(), heap.size()};
}

std::vector<FileDescriptor> LocalGroup::others() const {
  std::vector<FileDescriptor> others;
  for (const Mapped& neighbor : neighbors_)
    if (neighbor.process.pidfd().valid())
      others.emplace_back(::fcntl(neighbor.process.pidfd().get(), F_DUPFD_CLOEXEC, 0));
  return others;
}

std::vector<int> LocalGroup::ended() const {
  std::vector<pollfd> processes;
  for (const Mapped& neighbor : neighbors_)
    processes.push_back({.fd = neighbor.process.pidfd().get(), .events = POLLIN, .revents = 0});
  ::poll(processes.data(), processes.size(), 0);
  std::vector<int> ended;
  for (int index = 0; index < size(); ++index) {
    const OtherProcess& process = neighbor(index).process;
    const bool has_ended = process.pidfd().valid()
                               ? (processes[static_cast<std::size_t>(index)].revents & POLLIN) != 0
                               : process.ended();
    if (has_ended) ended.push_back(index);
  }
  return ended;
}

}  // namespace kolo::internal::node
