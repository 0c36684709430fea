#include "node/neighbourhood.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <exception>
#include <optional>
#include <utility>

#include "node/system_error.hpp"

namespace kolo::node {
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

Neighbourhood::Neighbour Neighbourhood::make_own(std::size_t bytes) {
  SharedMemory segment = SharedMemory::create(header_bytes + bytes);
  BellWord& word = word_in(segment);
  return {std::move(segment), Doorbell(word, Doorbell::open()), {}, {}, ::getpid()};
}

Neighbourhood::Neighbour Neighbourhood::make(Parcel parcel, std::size_t bytes,
                                             std::size_t heap_bytes) {
  std::vector<FileDescriptor>& sent = parcel.descriptors;
  SharedMemory segment = SharedMemory::map(std::move(sent[0]), header_bytes + bytes);
  BellWord& word = word_in(segment);
  return {std::move(segment), Doorbell(word, {std::move(sent[1]), std::move(sent[2])}),
          SharedMemory::map(std::move(sent[3]), heap_bytes), open_process(parcel.pid), parcel.pid};
}

Neighbourhood::Neighbourhood(const Party& party, std::size_t bytes, std::size_t heap_bytes,
                             const std::function<void()>& barrier)
    : index_(party.index) {
  std::optional<Neighbour> own;
  std::exception_ptr problem;
  try {
    own = make_own(bytes);
    own_heap_ = std::make_shared<SharedHeap>(heap_bytes);
  } catch (...) {
    problem = std::current_exception();
  }
  if (problem) {
    barrier();
    std::rethrow_exception(problem);
  }
  const Doorbell::Descriptors& bell = own->bell.descriptors();
  const std::array<int, 4> descriptors{own->segment.fd(), bell[0].get(), bell[1].get(),
                                       own_heap_->fd()};
  std::vector<Parcel> parcels = exchange_descriptors(party, descriptors, barrier, patience);
  for (int index = 0; index < party.size; ++index) {
    if (index == index_) {
      neighbours_.push_back(std::move(*own));
    } else {
      neighbours_.push_back(
          make(std::move(parcels[static_cast<std::size_t>(index)]), bytes, heap_bytes));
    }
  }
}

std::span<std::byte> Neighbourhood::heap(int index) const {
  if (index == index_) return own_heap_->memory();
  const SharedMemory& heap = neighbour(index).heap;
  return {heap.data(), heap.size()};
}

std::vector<FileDescriptor> Neighbourhood::others() const {
  std::vector<FileDescriptor> others;
  for (const Neighbour& neighbour : neighbours_)
    if (neighbour.process.valid())
      others.emplace_back(::fcntl(neighbour.process.get(), F_DUPFD_CLOEXEC, 0));
  return others;
}

std::vector<int> Neighbourhood::ended() const {
  std::vector<pollfd> processes;
  for (const Neighbour& neighbour : neighbours_)
    processes.push_back({.fd = neighbour.process.get(), .events = POLLIN, .revents = 0});
  std::vector<int> ended;
  if (::poll(processes.data(), processes.size(), 0) <= 0) return ended;
  for (std::size_t i = 0; i < processes.size(); ++i)
    if ((processes[i].revents & POLLIN) != 0) ended.push_back(static_cast<int>(i));
  return ended;
}

}  // namespace kolo::node
