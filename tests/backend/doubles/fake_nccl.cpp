// SPDX-License-Identifier: Apache-2.0
#include "fake_nccl.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "base/dtype.hpp"
#include "base/format.hpp"
#include "kolo/error.hpp"
#include "reduction/reduce.hpp"

namespace kolo::internal::backend {
namespace {

using Collective = FakeNcclWorld::Collective;
using Meeting = FakeNcclWorld::Meeting;
/// Work on a stream is done under CUDA's lock and takes the other.
using Lock = std::scoped_lock<std::recursive_mutex, std::recursive_mutex>;

reduction::Arithmetic arithmetic_of(const Collective& call) {
  reduction::Arithmetic arithmetic{.dtype = call.dtype};
  switch (call.op) {
    case nccl::RedOp::product: arithmetic.op = ReduceOp::product; break;
    case nccl::RedOp::max: arithmetic.op = ReduceOp::max; break;
    case nccl::RedOp::min: arithmetic.op = ReduceOp::min; break;
    case nccl::RedOp::sum: break;
  }
  // NCCL is given booleans as bytes.
  if (call.dtype == DType::boolean) arithmetic.dtype = DType::u8;
  return arithmetic;
}

/// Of all ranks' inputs from `begin` on.
std::vector<std::byte> reduce(const Meeting& meeting, std::int64_t begin, std::int64_t count) {
  const Collective& first = *meeting.calls.front();
  const auto each = static_cast<std::int64_t>(size_of(first.dtype));
  std::vector<const std::byte*> inputs;
  for (const auto& call : meeting.calls)
    inputs.push_back(static_cast<const std::byte*>(call->from) + begin * each);
  std::vector<std::byte> result(static_cast<std::size_t>(count * each));
  reduction::reduce(arithmetic_of(first), inputs, count, result.data());
  return result;
}

void put(const std::vector<std::byte>& bytes, void* to) {
  std::memcpy(to, bytes.data(), bytes.size());
}

std::vector<std::byte> copy_of(const void* from, std::int64_t bytes) {
  const auto* const begin = static_cast<const std::byte*>(from);
  return {begin, begin + bytes};
}

void carry_out(const Meeting& meeting) {
  const Collective& first = *meeting.calls.front();
  const std::int64_t count = first.count;
  if (first.name.starts_with("all_reduce")) {
    const auto result = reduce(meeting, 0, count);
    for (const auto& call : meeting.calls) put(result, call->to);
  } else if (first.name.starts_with("reduce_scatter")) {
    std::vector<std::vector<std::byte>> results;
    for (std::int64_t rank = 0; rank < std::ssize(meeting.calls); ++rank)
      results.push_back(reduce(meeting, rank * count, count));
    for (std::size_t rank = 0; rank < results.size(); ++rank)
      put(results[rank], meeting.calls[rank]->to);
  } else if (first.name.starts_with("all_gather")) {
    std::vector<std::byte> result;
    for (const auto& call : meeting.calls) {
      const auto part = copy_of(call->from, count);
      result.insert(result.end(), part.begin(), part.end());
    }
    for (const auto& call : meeting.calls) put(result, call->to);
  } else {
    const auto result = copy_of(meeting.calls[static_cast<std::size_t>(first.root)]->from, count);
    for (const auto& call : meeting.calls) put(result, call->to);
  }
}

}  // namespace

nccl::UniqueId FakeNcclWorld::make_id() {
  nccl::UniqueId id{};
  id.front() = static_cast<char>(++ids_);
  return id;
}

FakeNcclWorld::Clique& FakeNcclWorld::clique(const nccl::UniqueId& id) {
  if (id.front() == 0) complain("a communicator is made with an id that nobody has made");
  return cliques_[id];
}

void FakeNccl::fail_later(const std::string& error) {
  const Lock lock(cuda_->mutex(), world_.mutex());
  error_ = error;
}

int FakeNccl::communicators() const {
  const Lock lock(cuda_->mutex(), world_.mutex());
  return static_cast<int>(comms_.size());
}
int FakeNccl::inits() const {
  const Lock lock(cuda_->mutex(), world_.mutex());
  return inits_;
}
int FakeNccl::shrinks() const {
  const Lock lock(cuda_->mutex(), world_.mutex());
  return shrinks_;
}
int FakeNccl::aborts() const {
  const Lock lock(cuda_->mutex(), world_.mutex());
  return aborts_;
}

std::size_t FakeNccl::peak_bytes() const {
  const Lock lock(cuda_->mutex(), world_.mutex());
  return peak_bytes_;
}

int FakeNccl::version() {
  cuda_->faults.pass("ncclGetVersion");
  return reported_version;
}

nccl::UniqueId FakeNccl::make_unique_id() {
  cuda_->faults.pass("ncclGetUniqueId");
  const Lock lock(cuda_->mutex(), world_.mutex());
  return world_.make_id();
}

FakeNccl::Comm& FakeNccl::find(nccl::CommHandle handle, const char* call, bool idle) {
  const auto found = comms_.find(handle);
  if (found == comms_.end()) {
    world_.complain(fmt::format("{} with a communicator that has ended", call));
    throw BackendError(fmt::format("{} failed: invalid argument", call));
  }
  if (idle && found->second.looks_left != 0)
    world_.complain(fmt::format("{} while another call is under way", call));
  return found->second;
}

FakeNcclWorld::Clique& FakeNccl::join(int size, const nccl::UniqueId& id) {
  FakeNcclWorld::Clique& clique = world_.clique(id);
  if (clique.joined > 0 && clique.size != size) world_.complain("ranks give other sizes");
  clique.size = size;
  ++clique.joined;
  return clique;
}

void FakeNccl::write(nccl::CommHandle& comm, FakeNcclWorld::Clique& clique, int rank, int looks) {
  const auto made = reinterpret_cast<nccl::CommHandle>(next_++);
  Comm& state = comms_[made];
  state.clique = &clique;
  state.rank = rank;
  state.looks_left = looks;
  comm = made;
}

nccl::State FakeNccl::init(nccl::CommHandle& comm, int size, const nccl::UniqueId& id, int rank) {
  const Lock lock(cuda_->mutex(), world_.mutex());
  ++inits_;
  cuda_->faults.pass("ncclCommInitRankConfig");
  write(comm, join(size, id), rank, looks_at_init);
  return nccl::State::in_progress;
}

nccl::State FakeNccl::shrink(nccl::CommHandle& comm, nccl::CommHandle parent,
                             std::span<const int> excluded) {
  const Lock lock(cuda_->mutex(), world_.mutex());
  ++shrinks_;
  cuda_->faults.pass("ncclCommShrink");
  Comm& from = find(parent, "ncclCommShrink");
  if (*from.under_way > 0) world_.complain("a communicator is shrunk while it is in use");
  const std::vector<int> list(excluded.begin(), excluded.end());
  if (list.empty()) world_.complain("ncclCommShrink excludes no rank");
  if (std::ranges::binary_search(list, from.rank)) world_.complain("a rank excludes itself");
  nccl::UniqueId& id = from.clique->children[{list, from.shrinks[list]++}];
  if (id.front() == 0) id = world_.make_id();
  const auto before = std::ranges::lower_bound(list, from.rank) - list.begin();
  const int size = from.clique->size - static_cast<int>(list.size());
  from.looks_left = looks_at_init;
  comm = nullptr;
  from.children.push_back({&comm, &join(size, id), size, from.rank - static_cast<int>(before)});
  return nccl::State::in_progress;
}

void FakeNccl::write_children(Comm& parent, int looks) {
  for (const Child& child : std::exchange(parent.children, {}))
    write(*child.handle, *child.clique, child.rank, looks);
}

bool FakeNccl::children_have_joined(const Comm& comm) {
  return std::ranges::all_of(comm.children,
                             [](const Child& child) { return child.clique->joined >= child.size; });
}

nccl::State FakeNccl::state(nccl::CommHandle handle) {
  cuda_->faults.pass("ncclCommGetAsyncError");
  const Lock lock(cuda_->mutex(), world_.mutex());
  Comm& comm = find(handle, "ncclCommGetAsyncError", false);
  if (!error_.empty()) throw BackendError(error_);
  if (comm.clique->aborted > 0)
    throw BackendError("a call of NCCL under way failed: remote process exited (6)");
  if (comm.looks_left < 0 || comm.clique->joined < comm.clique->size || !children_have_joined(comm))
    return nccl::State::in_progress;
  if (comm.looks_left > 0 && --comm.looks_left > 0) return nccl::State::in_progress;
  write_children(comm, 1);
  for (FakeCuda::Work& work : std::exchange(comm.launching, {}))
    cuda_->enqueue(comm.stream, std::move(work));
  return nccl::State::ready;
}

void FakeNccl::destroy(nccl::CommHandle handle) noexcept {
  const Lock lock(cuda_->mutex(), world_.mutex());
  const auto found = comms_.find(handle);
  if (found == comms_.end()) return world_.complain("ncclCommDestroy of what has ended");
  if (found->second.registered.size() != found->second.deregistered.size())
    world_.complain("memory is registered still");
  if (*found->second.under_way > 0) world_.complain("a communicator is destroyed while it is used");
  *found->second.aborted = true;
  comms_.erase(found);
}

void FakeNccl::wait_for_kernels(const std::vector<std::shared_ptr<int>>& under_way) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  const auto left = [&] {
    const Lock lock(cuda_->mutex(), world_.mutex());
    return std::ranges::any_of(under_way, [](const auto& count) { return *count > 0; });
  };
  while (left()) {
    if (std::chrono::steady_clock::now() > deadline) {
      const Lock lock(cuda_->mutex(), world_.mutex());
      return world_.complain("ncclCommAbort waits for ever");
    }
    cuda_->advance();
  }
}

void FakeNccl::abort(std::span<const nccl::CommHandle* const> comms) noexcept {
  while (holds_aborts) std::this_thread::yield();
  std::vector<std::shared_ptr<int>> under_way;
  std::vector<nccl::CommHandle> ended;
  std::unique_lock<std::recursive_mutex> cuda_lock(cuda_->mutex(), std::defer_lock);
  std::unique_lock<std::recursive_mutex> world_lock(world_.mutex(), std::defer_lock);
  std::lock(cuda_lock, world_lock);
  for (const nccl::CommHandle* handle : comms) {
    if (*handle == nullptr) continue;
    const auto found = comms_.find(*handle);
    if (found == comms_.end()) {
      world_.complain("ncclCommAbort of what has ended");
      continue;
    }
    ++aborts_;
    // The thread that makes a child is joined: it has written the handle of what it has half made.
    write_children(found->second, -1);
    ++found->second.clique->aborted;
    *found->second.aborted = true;
    *found->second.under_way -= static_cast<int>(found->second.launching.size());
    found->second.launching.clear();
    under_way.push_back(found->second.under_way);
    ended.push_back(*handle);
  }
  for (const auto& [handle, comm] : comms_)
    if (!*comm.aborted && *comm.under_way > 0 && !ended.empty())
      world_.complain("ncclCommAbort waits for kernels of a communicator outside of its group");
  world_lock.unlock();
  cuda_lock.unlock();
  wait_for_kernels(under_way);
  const Lock lock(cuda_->mutex(), world_.mutex());
  for (const nccl::CommHandle handle : ended) comms_.erase(handle);
}

std::byte* FakeNccl::allocate(std::size_t bytes) {
  cuda_->faults.pass("ncclMemAlloc");
  std::byte* const memory = cuda_->make_memory(bytes);
  const Lock lock(cuda_->mutex(), world_.mutex());
  memory_[memory] = bytes;
  std::size_t all = 0;
  for (const auto& [place, size] : memory_) all += size;
  peak_bytes_ = std::max(peak_bytes_, all);
  return memory;
}

void FakeNccl::release(std::byte* memory) noexcept {
  const Lock lock(cuda_->mutex(), world_.mutex());
  // Kernels that run would access memory that is not mapped: an error that the process keeps.
  for (const auto& [handle, comm] : comms_)
    if (std::ranges::any_of(comm.registered, [&](const auto& r) { return r.first == memory; }))
      world_.complain("memory is released while its communicator is alive");
  memory_.erase(memory);
  cuda_->unmap_memory(memory);
}

void* FakeNccl::register_buffer(nccl::CommHandle handle, std::byte* memory, std::size_t bytes) {
  cuda_->faults.pass("ncclCommRegister");
  const Lock lock(cuda_->mutex(), world_.mutex());
  find(handle, "ncclCommRegister").registered.emplace_back(memory, bytes);
  if (!cuda_->is_memory(memory, bytes)) world_.complain("memory is registered that is not there");
  return memory;
}

void FakeNccl::deregister_buffer(nccl::CommHandle handle, void* registration) noexcept {
  const Lock lock(cuda_->mutex(), world_.mutex());
  if (!comms_.contains(handle) || registration == nullptr)
    return world_.complain("ncclCommDeregister of what is not registered");
  comms_[handle].deregistered.push_back(registration);
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

void FakeNccl::group_start() {
  cuda_->faults.pass("ncclGroupStart");
  const Lock lock(cuda_->mutex(), world_.mutex());
  if (std::exchange(grouping_, true)) world_.complain("a group in a group");
}

nccl::State FakeNccl::group_end(nccl::CommHandle handle) {
  const Lock lock(cuda_->mutex(), world_.mutex());
  if (!std::exchange(grouping_, false)) world_.complain("ncclGroupEnd without a beginning");
  std::vector<FakeCuda::Work> works = std::exchange(group_, {});
  cuda_->faults.pass("ncclGroupEnd");
  Comm& comm = find(handle, "ncclGroupEnd");
  if (works.empty() && !call_failed_) world_.complain("a group without calls");
  // All of a group together: none waits for another to be done.
  std::vector<bool> done(works.size(), false);
  ++*comm.under_way;
  comm.launching.push_back([works = std::move(works), done, left = comm.under_way]() mutable {
    bool all = true;
    for (std::size_t i = 0; i < works.size(); ++i) {
      if (!done[i]) done[i] = works[i]();
      all = all && done[i];
    }
    if (all) --*left;
    return all;
  });
  comm.looks_left = looks_at_group;
  if (looks_at_group != 0) return nccl::State::in_progress;
  return state(handle);
}

void FakeNccl::add(FakeCuda::Work work, Comm& comm, nccl::StreamHandle stream) {
  if (!grouping_) world_.complain("a call outside of a group");
  comm.stream = stream;
  group_.push_back([work = std::move(work), aborted = comm.aborted] { return *aborted || work(); });
}

void FakeNccl::add_collective(Collective call, nccl::CommHandle handle, nccl::StreamHandle stream) {
  const std::string function = call.name;
  call_failed_ = true;
  cuda_->faults.pass(function);
  call_failed_ = false;
  const Lock lock(cuda_->mutex(), world_.mutex());
  Comm& comm = find(handle, function.c_str());
  call.name = fmt::format("{} of {} {}, op {}, root {}", function, call.count,
                          to_string(call.dtype), static_cast<int>(call.op), call.root);
  call.places = place_of(comm, call.from) + ", " + place_of(comm, call.to);
  calls_.push_back(call.name);
  const std::size_t number = comm.collectives++;
  add(
      [this, call, number, clique = comm.clique, rank = comm.rank] {
        const std::lock_guard inner(world_.mutex());
        if (clique->meetings.size() <= number) clique->meetings.resize(number + 1);
        Meeting& meeting = clique->meetings[number];
        meeting.calls.resize(static_cast<std::size_t>(clique->size));
        auto& own = meeting.calls[static_cast<std::size_t>(rank)];
        if (!own) own = call;
        if (meeting.done) return true;
        if (!std::ranges::all_of(meeting.calls, [](const auto& c) { return c.has_value(); }))
          return false;
        for (const auto& other : meeting.calls)
          if (other->name != call.name)
            world_.complain(fmt::format("\"{}\" meets \"{}\"", call.name, other->name));
          else if (other->places != call.places)
            world_.complain(fmt::format("ranks use other registered memory: {} and {}", call.places,
                                        other->places));
        carry_out(meeting);
        meeting.done = true;
        return true;
      },
      comm, stream);
}

void FakeNccl::all_reduce(const void* from, void* to, std::int64_t count, DType dtype,
                          nccl::RedOp op, nccl::CommHandle comm, nccl::StreamHandle stream) {
  add_collective({"all_reduce", from, to, count, dtype, op}, comm, stream);
}

void FakeNccl::reduce_scatter(const void* from, void* to, std::int64_t count, DType dtype,
                              nccl::RedOp op, nccl::CommHandle comm, nccl::StreamHandle stream) {
  add_collective({"reduce_scatter", from, to, count, dtype, op}, comm, stream);
}

void FakeNccl::all_gather(const void* from, void* to, std::int64_t bytes, nccl::CommHandle comm,
                          nccl::StreamHandle stream) {
  add_collective({"all_gather", from, to, bytes}, comm, stream);
}

void FakeNccl::broadcast(const void* from, void* to, std::int64_t bytes, int root,
                         nccl::CommHandle comm, nccl::StreamHandle stream) {
  add_collective({.name = "broadcast", .from = from, .to = to, .count = bytes, .root = root}, comm,
                 stream);
}

void FakeNccl::send(const void* from, std::int64_t bytes, int peer, nccl::CommHandle handle,
                    nccl::StreamHandle stream) {
  cuda_->faults.pass("send");
  const Lock lock(cuda_->mutex(), world_.mutex());
  Comm& comm = find(handle, "ncclSend");
  calls_.push_back(fmt::format("send of {} to {}", bytes, peer));
  add(
      [this, clique = comm.clique, key = std::pair(comm.rank, peer), from, bytes,
       number = std::optional<std::size_t>()]() mutable {
        const std::lock_guard inner(world_.mutex());
        auto& messages = clique->messages[key];
        if (!number) {
          number = messages.size();
          messages.push_back({from, bytes});
        }
        return messages[*number].received;
      },
      comm, stream);
}

void FakeNccl::receive(void* to, std::int64_t bytes, int peer, nccl::CommHandle handle,
                       nccl::StreamHandle stream) {
  cuda_->faults.pass("receive");
  const Lock lock(cuda_->mutex(), world_.mutex());
  Comm& comm = find(handle, "ncclRecv");
  calls_.push_back(fmt::format("receive of {} from {}", bytes, peer));
  add(
      [this, clique = comm.clique, key = std::pair(peer, comm.rank), to, bytes] {
        const std::lock_guard inner(world_.mutex());
        for (auto& message : clique->messages[key]) {
          if (message.received) continue;
          if (message.bytes != bytes)
            world_.complain(fmt::format("{} bytes are sent, {} received", message.bytes, bytes));
          std::memcpy(to, message.from, static_cast<std::size_t>(std::min(bytes, message.bytes)));
          return message.received = true;
        }
        return false;
      },
      comm, stream);
}

}  // namespace kolo::internal::backend
