// SPDX-License-Identifier: Apache-2.0
#include "node/local_group.hpp"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <optional>
#include <utility>

#include "node/processors.hpp"

namespace kolo::internal::node {
namespace {

/// The start of each rank's segment. All members but `word` are written before other ranks map it.
struct Header {
  BellWord word;
  Caches caches;
  int numa_node;  // -1: none, or not known
};

Header& header_of(const SharedMemory& segment) {
  return *reinterpret_cast<Header*>(segment.data());
}

}  // namespace

OwnMemory::OwnMemory(std::size_t bytes, std::size_t heap_bytes)
    : OwnMemory(bytes, std::make_shared<SharedHeap>(heap_bytes)) {}

OwnMemory::OwnMemory(std::size_t bytes, std::shared_ptr<SharedHeap> heap)
    : segment_(SharedMemory::create(LocalGroup::header_bytes + bytes)),
      bell_(Doorbell::open()),
      heap_(std::move(heap)) {
  static_assert(sizeof(Header) <= LocalGroup::header_bytes);
  const std::vector<int> own = own_processors();
  const Processors processors = Processors::of_this_host();
  header_of(segment_).caches = processors.caches_of(own);
  header_of(segment_).numa_node = processors.numa_node_of(own);
}

LocalGroup::Mapped LocalGroup::map(ReceivedFds received, std::size_t bytes) {
  // On return, `received` closes the descriptors of the segment and the heap, which the mappings do
  // not need. With many ranks, they would exceed the limit of open files.
  OtherProcess process(received.pid);
  std::vector<FileDescriptor>& sent = received.fds;
  SharedMemory segment = SharedMemory::map(sent[0], bytes);
  BellWord& word = header_of(segment).word;
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
  BellWord& word = header_of(own.segment_).word;
  mapped[static_cast<std::size_t>(index_)] = {
      std::move(own.segment_), Doorbell(word, std::move(own.bell_)), {}, {}};
  std::vector<Caches> caches;
  for (std::optional<Mapped>& local_peer : mapped) {
    local_peers_.push_back(std::move(*local_peer));
    const Header& header = header_of(local_peers_.back().segment);
    caches.push_back(header.caches);
    numa_nodes_.push_back(header.numa_node);
  }
  cache_share_ = node::cache_share(caches);
}

pid_t LocalGroup::process(int index) const {
  return index == index_ ? ::getpid() : local_peer(index).process.pid();
}

std::span<std::byte> LocalGroup::heap(int index) const {
  if (index == index_) return own_heap_->memory();
  const SharedMemory& heap = local_peer(index).heap;
  return {heap.data(), heap.size()};
}

std::vector<FileDescriptor> LocalGroup::others() const {
  std::vector<FileDescriptor> others;
  for (const Mapped& local_peer : local_peers_)
    if (local_peer.process.pidfd().valid())
      others.emplace_back(::fcntl(local_peer.process.pidfd().get(), F_DUPFD_CLOEXEC, 0));
  return others;
}

std::vector<int> LocalGroup::ended() const {
  std::vector<pollfd> processes;
  for (const Mapped& local_peer : local_peers_)
    processes.push_back({.fd = local_peer.process.pidfd().get(), .events = POLLIN, .revents = 0});
  // `poll` ignores negative descriptors: processes without a pidfd are looked up in /proc below.
  ::poll(processes.data(), processes.size(), 0);
  std::vector<int> ended;
  for (int index = 0; index < size(); ++index) {
    const OtherProcess& process = local_peer(index).process;
    const bool has_ended = process.pidfd().valid()
                               ? (processes[static_cast<std::size_t>(index)].revents & POLLIN) != 0
                               : process.ended();
    if (has_ended) ended.push_back(index);
  }
  return ended;
}

}  // namespace kolo::internal::node
