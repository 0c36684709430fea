// SPDX-License-Identifier: Apache-2.0
// The groups and calls of the NCCL double.
#include "fake_nccl.hpp"

#include <fmt/format.h>

#include <thread>
#include <utility>

#include "base/dtype.hpp"
#include "base/format.hpp"
#include "kolo/error.hpp"

namespace kolo::internal::backend {

void FakeNccl::group_start() {
  cuda_->faults.pass("ncclGroupStart");
  const Lock held = lock();
  if (std::exchange(grouping_, true)) world_.complain("a group in a group");
}

/// A call that waits for the other ranks: it returns once all have made as many such calls, and
/// throws after an abort.
void FakeNccl::meet(nccl::CommHandle handle, int NcclClique::*calls, int before) {
  const auto met = [&] {
    const Lock held = lock();
    Comm& comm = comms_.at(handle);
    if (!std::exchange(comm.is_inside, true)) ++(comm.clique->*calls);
    const bool all = comm.clique->*calls >= (before + 1) * comm.clique->size && looks_at_group >= 0;
    const bool fails = *comm.aborted || (notices_aborts && comm.clique->aborted > 0);
    comm.is_inside = holds_calls || (!all && !fails);
    if (fails && !comm.is_inside)
      throw BackendError("a call of NCCL failed: remote process exited (6)");
    return !comm.is_inside;
  };
  while (!met()) std::this_thread::yield();
}

nccl::State FakeNccl::group_end(nccl::CommHandle handle) {
  std::vector<FakeCuda::Work> works;
  bool connects = false;
  {
    const Lock held = lock();
    if (!std::exchange(grouping_, false)) world_.complain("ncclGroupEnd without a beginning");
    works = std::exchange(group_, {});
    cuda_->faults.pass("ncclGroupEnd");
    Comm& comm = find(handle, "ncclGroupEnd");
    if (works.empty() && !call_failed_) world_.complain("a group without calls");
    connects = comm.blocks && !std::exchange(comm.connected, true);
  }
  if (connects) meet(handle, &NcclClique::connected, 0);
  const Lock held = lock();
  Comm& comm = find(handle, "ncclGroupEnd");
  // All of a group together: none waits for another to be done.
  std::vector<bool> done(works.size(), false);
  // Work that a graph records is not under way.
  const bool captured = comm.blocks && cuda_->is_capturing(comm.stream);
  const std::shared_ptr<int> left = captured ? std::make_shared<int>(0) : comm.under_way;
  ++*left;
  comm.launching.push_back([works = std::move(works), done, left]() mutable {
    bool all = true;
    for (std::size_t i = 0; i < works.size(); ++i) {
      if (!done[i]) done[i] = works[i]();
      all = all && done[i];
    }
    if (all) --*left;
    return all;
  });
  comm.looks_left = comm.blocks ? 0 : looks_at_group;
  if (comm.looks_left != 0) return nccl::State::in_progress;
  return state(handle);
}

void FakeNccl::add(FakeCuda::Work work, Comm& comm, nccl::StreamHandle stream) {
  if (!grouping_) world_.complain("a call outside of a group");
  comm.stream = stream;
  group_.push_back([work = std::move(work), aborted = comm.aborted] { return *aborted || work(); });
}

void FakeNccl::add_collective(const char* function, const NcclCollective& collective,
                              nccl::CommHandle handle, nccl::StreamHandle stream) {
  call_failed_ = true;
  cuda_->faults.pass(function);
  call_failed_ = false;
  const Lock held = lock();
  Comm& comm = find(handle, function);
  const std::string name =
      fmt::format("{} of {} {}, op {}, root {}", function, collective.count,
                  to_string(collective.dtype), static_cast<int>(collective.op), collective.root);
  const std::string places = places_of(comm, collective);
  calls_.push_back(name);
  NcclCall call{};
  name.copy(call.name.data(), call.name.size() - 1);
  places.copy(call.places.data(), call.places.size() - 1);
  add(
      [place = NcclPlace{world_, *cuda_, *comm.clique, comm.rank}, collective, call,
       count = comm.collectives, kernel = FakeCuda::Work()]() mutable {
        if (!kernel) kernel = collective_kernel(place, collective, call, (*count)++);
        return kernel();
      },
      comm, stream);
}

void FakeNccl::all_reduce(const void* from, void* to, std::int64_t count, DType dtype,
                          nccl::RedOp op, nccl::CommHandle comm, nccl::StreamHandle stream) {
  add_collective("all_reduce", {NcclCollective::Kind::all_reduce, from, to, count, dtype, op}, comm,
                 stream);
}

void FakeNccl::reduce_scatter(const void* from, void* to, std::int64_t count, DType dtype,
                              nccl::RedOp op, nccl::CommHandle comm, nccl::StreamHandle stream) {
  add_collective("reduce_scatter",
                 {NcclCollective::Kind::reduce_scatter, from, to, count, dtype, op}, comm, stream);
}

void FakeNccl::all_gather(const void* from, void* to, std::int64_t bytes, nccl::CommHandle comm,
                          nccl::StreamHandle stream) {
  add_collective("all_gather", {NcclCollective::Kind::all_gather, from, to, bytes}, comm, stream);
}

void FakeNccl::broadcast(const void* from, void* to, std::int64_t bytes, int root,
                         nccl::CommHandle comm, nccl::StreamHandle stream) {
  add_collective("broadcast",
                 {.kind = NcclCollective::Kind::broadcast,
                  .from = from,
                  .to = to,
                  .count = bytes,
                  .root = root},
                 comm, stream);
}

void FakeNccl::send(const void* from, std::int64_t bytes, int peer, nccl::CommHandle handle,
                    nccl::StreamHandle stream) {
  cuda_->faults.pass("send");
  const Lock held = lock();
  Comm& comm = find(handle, "ncclSend");
  calls_.push_back(fmt::format("send of {} to {}", bytes, peer));
  add(send_kernel({world_, *cuda_, *comm.clique, comm.rank}, from, bytes, peer, comm.sends[peer]++),
      comm, stream);
}

void FakeNccl::receive(void* to, std::int64_t bytes, int peer, nccl::CommHandle handle,
                       nccl::StreamHandle stream) {
  cuda_->faults.pass("receive");
  const Lock held = lock();
  Comm& comm = find(handle, "ncclRecv");
  calls_.push_back(fmt::format("receive of {} from {}", bytes, peer));
  add(receive_kernel({world_, *cuda_, *comm.clique, comm.rank}, to, bytes, peer,
                     comm.receives[peer]++),
      comm, stream);
}

}  // namespace kolo::internal::backend
