// SPDX-License-Identifier: Apache-2.0
#include "fake_nccl.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
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

reduction::Arithmetic arithmetic_of(const Collective& call, std::int64_t ranks) {
  reduction::Arithmetic arithmetic{.dtype = call.dtype, .prescale = call.factor};
  switch (call.op) {
    case nccl::RedOp::product: arithmetic.op = ReduceOp::product; break;
    case nccl::RedOp::max: arithmetic.op = ReduceOp::max; break;
    case nccl::RedOp::min: arithmetic.op = ReduceOp::min; break;
    case nccl::RedOp::average: arithmetic.divisor = ranks; break;
    default: break;
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
  reduction::reduce(arithmetic_of(first, std::ssize(meeting.calls)), inputs, count, result.data());
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

nccl::State FakeNccl::init(nccl::CommHandle& comm, int size, const nccl::UniqueId& id, int rank) {
  const Lock lock(cuda_->mutex(), world_.mutex());
  ++inits_;
  cuda_->faults.pass("ncclCommInitRankConfig");
  return add_comm(comm, size, id, rank);
}

nccl::State FakeNccl::shrink(nccl::CommHandle& comm, nccl::CommHandle parent,
                             std::span<const int> excluded) {
  const Lock lock(cuda_->mutex(), world_.mutex());
  ++shrinks_;
  cuda_->faults.pass("ncclCommShrink");
  Comm& from = find(parent, "ncclCommShrink");
  if (*from.under_way > 0) world_.complain("a communicator is shrunk while it is in use");
  const std::vector<int> list(excluded.begin(), excluded.end());
  if (std::ranges::binary_search(list, from.rank)) world_.complain("a rank excludes itself");
  nccl::UniqueId& id = from.clique->children[{list, from.shrinks[list]++}];
  if (id.front() == 0) id = world_.make_id();
  const auto before = std::ranges::lower_bound(list, from.rank) - list.begin();
  from.looks_left = 1;  // it is to be looked at, too
  return add_comm(comm, from.clique->size - static_cast<int>(list.size()), id,
                  from.rank - static_cast<int>(before));
}

nccl::State FakeNccl::add_comm(nccl::CommHandle& comm, int size, const nccl::UniqueId& id,
                               int rank) {
  comm = reinterpret_cast<nccl::CommHandle>(next_++);
  FakeNcclWorld::Clique& clique = world_.clique(id);
  if (clique.joined > 0 && clique.size != size) world_.complain("ranks give other sizes");
  clique.size = size;
  ++clique.joined;
  Comm& made = comms_[comm];
  made.id = id;
  made.clique = &clique;
  made.rank = rank;
  made.looks_left = looks_at_init;
  return nccl::State::in_progress;
}

nccl::State FakeNccl::state(nccl::CommHandle handle) {
  cuda_->faults.pass("ncclCommGetAsyncError");
  const Lock lock(cuda_->mutex(), world_.mutex());
  Comm& comm = find(handle, "ncclCommGetAsyncError", false);
  if (!error_.empty()) throw BackendError(error_);
  if (comm.clique->aborted > 0)
    throw BackendError("a call of NCCL under way failed: remote process exited (6)");
  if (comm.looks_left < 0 || comm.clique->joined < comm.clique->size)
    return nccl::State::in_progress;
  if (comm.looks_left > 0 && --comm.looks_left > 0) return nccl::State::in_progress;
  for (FakeCuda::Work& work : std::exchange(comm.launching, {}))
    cuda_->enqueue(comm.stream, std::move(work));
  return nccl::State::ready;
}

void FakeNccl::end(nccl::CommHandle handle, const char* call) noexcept {
  const auto found = comms_.find(handle);
  if (found == comms_.end()) return world_.complain(fmt::format("{} of what has ended", call));
  if (std::string(call) == "ncclCommDestroy") {
    if (found->second.registrations != 0) world_.complain("memory is registered still");
    if (!found->second.ops.empty()) world_.complain("an operation was not destroyed");
  }
  *found->second.aborted = true;
  comms_.erase(found);
}

void FakeNccl::destroy(nccl::CommHandle comm) noexcept {
  const Lock lock(cuda_->mutex(), world_.mutex());
  end(comm, "ncclCommDestroy");
}

void FakeNccl::abort(nccl::CommHandle comm) noexcept {
  const Lock lock(cuda_->mutex(), world_.mutex());
  ++aborts_;
  if (comms_.contains(comm)) ++comms_[comm].clique->aborted;
  end(comm, "ncclCommAbort");
}

std::byte* FakeNccl::allocate(std::size_t bytes) {
  cuda_->faults.pass("ncclMemAlloc");
  return cuda_->make_memory(bytes);
}
void FakeNccl::release(std::byte* memory) noexcept { cuda_->free_memory(memory); }

void* FakeNccl::register_buffer(nccl::CommHandle comm, std::byte* memory, std::size_t bytes) {
  cuda_->faults.pass("ncclCommRegister");
  const Lock lock(cuda_->mutex(), world_.mutex());
  ++find(comm, "ncclCommRegister").registrations;
  if (!cuda_->is_memory(memory, bytes)) world_.complain("memory is registered that is not there");
  return memory;
}

void FakeNccl::deregister_buffer(nccl::CommHandle comm, void* registration) noexcept {
  const Lock lock(cuda_->mutex(), world_.mutex());
  if (!comms_.contains(comm) || registration == nullptr)
    return world_.complain("ncclCommDeregister of what is not registered");
  --comms_[comm].registrations;
}

nccl::RedOp FakeNccl::make_scaled_sum(nccl::CommHandle comm, double factor, DType dtype) {
  cuda_->faults.pass("ncclRedOpCreatePreMulSum");
  const Lock lock(cuda_->mutex(), world_.mutex());
  if (!is_floating(dtype)) world_.complain("integers are multiplied by a real number");
  const auto op = static_cast<nccl::RedOp>(next_op_++);
  find(comm, "ncclRedOpCreatePreMulSum").ops[op] = factor;
  return op;
}

void FakeNccl::destroy_op(nccl::CommHandle comm, nccl::RedOp op) noexcept {
  const Lock lock(cuda_->mutex(), world_.mutex());
  if (!comms_.contains(comm) || comms_[comm].ops.erase(op) == 0)
    world_.complain("ncclRedOpDestroy of what is not there");
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
  if (const auto made = comm.ops.find(call.op); made != comm.ops.end()) {
    call.factor = made->second;
    call.op = nccl::RedOp::sum;
  }
  call.name = fmt::format("{} of {} {}, op {}, factor {}, root {}", function, call.count,
                          to_string(call.dtype), static_cast<int>(call.op), call.factor, call.root);
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
