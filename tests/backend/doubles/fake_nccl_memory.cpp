// SPDX-License-Identifier: Apache-2.0
// The memory of the NCCL double, and its registration with communicators.
#include "fake_nccl.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace kolo::internal::backend {

std::size_t FakeNccl::peak_bytes() const {
  const Lock held = lock();
  return peak_bytes_;
}

std::byte* FakeNccl::allocate(std::size_t bytes) {
  cuda_->faults.pass("ncclMemAlloc");
  std::byte* const memory = cuda_->make_memory(bytes);
  const Lock held = lock();
  memory_[memory] = bytes;
  std::size_t all = 0;
  for (const auto& [place, size] : memory_) all += size;
  peak_bytes_ = std::max(peak_bytes_, all);
  return memory;
}

void FakeNccl::release(std::byte* memory) noexcept {
  const Lock held = lock();
  // Kernels that run would access memory that is not mapped: an error that the process keeps.
  for (const auto& [handle, comm] : comms_)
    if (std::ranges::any_of(comm.registered, [&](const auto& r) { return r.first == memory; }))
      world_.complain("memory is released while its communicator is alive");
  memory_.erase(memory);
  cuda_->unmap_memory(memory);
}

nccl::Registration FakeNccl::register_buffer(nccl::CommHandle handle, std::byte* memory,
                                             std::size_t bytes) {
  cuda_->faults.pass("ncclCommWindowRegister");
  int before = 0;
  bool waits = false;
  {
    const Lock held = lock();
    Comm& comm = find(handle, "ncclCommWindowRegister");
    before = static_cast<int>(comm.registered.size());
    waits = comm.blocks;
    comm.registered.emplace_back(memory, bytes);
    if (!cuda_->is_memory(memory, bytes)) world_.complain("memory is registered that is not there");
    // NCCL's own threads, which map it, are in no relaxed mode.
    if (cuda_->captures_globally()) world_.complain("memory is registered during a capture");
  }
  if (waits) meet(handle, &NcclClique::registered, before);
  return {memory, waits};
}

void FakeNccl::deregister_buffer(nccl::CommHandle handle,
                                 const nccl::Registration& registration) noexcept {
  const Lock held = lock();
  if (!comms_.contains(handle) || registration.handle == nullptr)
    return world_.complain("what is not registered is deregistered");
  comms_[handle].deregistered.push_back(registration.handle);
}

std::string FakeNccl::place_of(const Comm& comm, const void* memory) {
  const auto* const place = static_cast<const std::byte*>(memory);
  for (std::size_t i = 0; i < comm.registered.size(); ++i) {
    const auto& [begin, bytes] = comm.registered[i];
    if (begin <= place && place < begin + bytes)
      return fmt::format("registration {} + {}", i, place - begin);
  }
  return "memory that is not registered";
}

/// In place, each rank of an allgather gives another part of the same memory.
std::string FakeNccl::places_of(const Comm& comm, const NcclCollective& collective) {
  const auto* const own =
      static_cast<const std::byte*>(collective.to) + comm.rank * collective.count;
  const bool is_in_place =
      collective.kind == NcclCollective::Kind::all_gather && collective.from == own;
  const std::string to = place_of(comm, collective.to);
  return (is_in_place ? "in place" : place_of(comm, collective.from)) + ", " + to;
}

}  // namespace kolo::internal::backend
