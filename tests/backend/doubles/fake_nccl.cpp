// SPDX-License-Identifier: Apache-2.0
#include "fake_nccl.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

#include "kolo/error.hpp"

namespace kolo::internal::backend {

void FakeNccl::fail_later(const std::string& error) {
  const Lock held = lock();
  error_ = error;
}

int FakeNccl::communicators() const {
  const Lock held = lock();
  return static_cast<int>(
      std::ranges::count_if(comms_, [](const auto& comm) { return !comm.second.blocks; }));
}
bool FakeNccl::any() const {
  const Lock held = lock();
  return !comms_.empty();
}
int FakeNccl::inits() const {
  const Lock held = lock();
  return inits_;
}
int FakeNccl::shrinks() const {
  const Lock held = lock();
  return shrinks_;
}
std::vector<std::string> FakeNccl::calls() const {
  const Lock held = lock();
  return calls_;
}
bool FakeNccl::is_inside_a_call() const {
  const Lock held = lock();
  return std::ranges::any_of(comms_, [](const auto& comm) { return comm.second.is_inside; });
}
int FakeNccl::aborts() const {
  const Lock held = lock();
  return aborts_;
}

int FakeNccl::version() {
  cuda_->faults.pass("ncclGetVersion");
  return reported_version;
}

nccl::UniqueId FakeNccl::make_unique_id() {
  while (holds_ids) std::this_thread::yield();
  cuda_->faults.pass("ncclGetUniqueId");
  const Lock held = lock();
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

void FakeNccl::write(nccl::CommHandle& comm, NcclClique& clique, int rank, int looks, bool blocks) {
  const auto made = reinterpret_cast<nccl::CommHandle>(next_++);
  Comm& state = comms_[made];
  state.clique = &clique;
  state.rank = rank;
  state.looks_left = looks;
  state.blocks = blocks;
  clique.processes.at(static_cast<std::size_t>(rank)) = ::getpid();
  comm = made;
}

nccl::State FakeNccl::init(nccl::CommHandle& comm, int size, const nccl::UniqueId& id, int rank) {
  const Lock held = lock();
  ++inits_;
  cuda_->faults.pass("ncclCommInitRankConfig");
  write(comm, world_.join(id, size), rank, looks_at_init, /*blocks=*/false);
  return nccl::State::in_progress;
}

void FakeNccl::shrink(nccl::CommHandle& comm, nccl::CommHandle parent,
                      std::span<const int> excluded) {
  const Lock held = lock();
  ++shrinks_;
  cuda_->faults.pass("ncclCommShrink");
  Comm& from = find(parent, "ncclCommShrink");
  const std::vector<int> list(excluded.begin(), excluded.end());
  if (list.empty()) world_.complain("ncclCommShrink excludes no rank");
  if (std::ranges::binary_search(list, from.rank)) world_.complain("a rank excludes itself");
  begin_child(comm, from, list, /*blocks=*/false);
}

void FakeNccl::split(nccl::CommHandle& comm, nccl::CommHandle parent) {
  const Lock held = lock();
  cuda_->faults.pass("ncclCommSplit");
  begin_child(comm, find(parent, "ncclCommSplit"), {}, /*blocks=*/true);
}

void FakeNccl::begin_child(nccl::CommHandle& comm, Comm& from, const std::vector<int>& list,
                           bool blocks) {
  if (from.blocks) world_.complain("a communicator is derived from one whose calls block");
  if (*from.under_way > 0) world_.complain("a communicator is derived from while it is in use");
  if (!from.children.empty()) world_.complain("a communicator is derived from twice at once");
  std::uint32_t mask = 0;
  for (const int rank : list) mask |= 1U << static_cast<unsigned>(rank);
  const nccl::UniqueId id = world_.child(*from.clique, mask, from.shrinks[list]++);
  const auto before = std::ranges::lower_bound(list, from.rank) - list.begin();
  const int size = from.clique->size - static_cast<int>(list.size());
  from.looks_left = looks_at_init;
  comm = nullptr;
  from.children.push_back({&comm, &world_.join(id, size), size,
                           from.rank - static_cast<int>(before), looks_without_child, blocks});
}

void FakeNccl::write_children(Comm& parent, int looks) {
  for (const Child& child : std::exchange(parent.children, {}))
    write(*child.handle, *child.clique, child.rank, looks, child.blocks);
}

bool FakeNccl::children_have_joined(const Comm& comm) {
  return std::ranges::all_of(comm.children,
                             [](const Child& child) { return child.clique->joined >= child.size; });
}

nccl::State FakeNccl::state(nccl::CommHandle handle) {
  cuda_->faults.pass("ncclCommGetAsyncError");
  const Lock held = lock();
  Comm& comm = find(handle, "ncclCommGetAsyncError", false);
  if (!error_.empty()) throw BackendError(error_);
  if (cuda_->is_broken())
    throw BackendError("a call of NCCL under way failed: unhandled cuda error (1)");
  if (notices_aborts && comm.clique->aborted > 0)
    throw BackendError("a call of NCCL under way failed: remote process exited (6)");
  if (!comm.made && cuda_->captures_globally()) {
    error_ =
        "a call of NCCL under way failed: unhandled cuda error (1): Cuda failure 'operation not "
        "permitted when stream is capturing'";
    throw BackendError(error_);
  }
  if (comm.looks_left < 0 || comm.clique->joined < comm.clique->size || !children_have_joined(comm))
    return nccl::State::in_progress;
  if (comm.looks_left > 0 && --comm.looks_left > 0) return nccl::State::in_progress;
  comm.made = true;
  if (!comm.children.empty() && comm.children.front().looks_left-- > 0) return nccl::State::ready;
  write_children(comm, 1);
  for (FakeCuda::Work& work : std::exchange(comm.launching, {}))
    cuda_->enqueue(comm.stream, std::move(work));
  return nccl::State::ready;
}

const NcclClique* FakeNccl::begin_to_destroy(nccl::CommHandle handle) {
  const Lock held = lock();
  const auto found = comms_.find(handle);
  if (found == comms_.end()) {
    world_.complain("ncclCommDestroy of what has ended");
    return nullptr;
  }
  if (found->second.registered.size() != found->second.deregistered.size())
    world_.complain("memory is registered still");
  if (*found->second.under_way > 0) world_.complain("a communicator is destroyed while it is used");
  *found->second.aborted = true;
  leave_others(found->second);
  return found->second.clique;
}

void FakeNccl::leave_others(const Comm& comm) {
  comm.clique->processes.at(static_cast<std::size_t>(comm.rank)) = 0;
}

/// As commFree, which waits for the thread of the proxy. ncclProxyService ends when no rank of the
/// host is connected any more, also that of an aborted communicator. The latest versions have a
/// barrier besides (commDestroySync).
void FakeNccl::wait_for_others(const NcclClique& clique, const char* call) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  const auto alone = [&] {
    const Lock held = lock();
    return std::ranges::all_of(clique.processes, [](int process) {
      return process == 0 || (::kill(process, 0) != 0 && errno == ESRCH);
    });
  };
  while (!alone()) {
    if (std::chrono::steady_clock::now() > deadline) {
      const Lock held = lock();
      return world_.complain(fmt::format("{} waits for ever for another rank", call));
    }
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

void FakeNccl::destroy(nccl::CommHandle handle) noexcept {
  const NcclClique* const clique = begin_to_destroy(handle);
  if (clique == nullptr) return;
  wait_for_others(*clique, "ncclCommDestroy");
  const Lock held = lock();
  end(handle);
}

void FakeNccl::wait_for_kernels(const std::vector<std::shared_ptr<int>>& under_way) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  const auto left = [&] {
    const Lock held = lock();
    return std::ranges::any_of(under_way, [](const auto& count) { return *count > 0; });
  };
  while (!cuda_->is_broken() && left()) {
    if (std::chrono::steady_clock::now() > deadline) {
      const Lock held = lock();
      return world_.complain("ncclCommAbort waits for ever");
    }
    cuda_->advance();
  }
}

bool FakeNccl::begin_to_abort(nccl::CommHandle handle,
                              std::vector<std::shared_ptr<int>>& under_way) {
  const auto found = comms_.find(handle);
  if (found == comms_.end()) {
    world_.complain("ncclCommAbort of what has ended");
    return false;
  }
  Comm& comm = found->second;
  if (!comm.blocks) ++aborts_;
  // The thread that makes a child is joined: it has written the handle of what it has half made.
  write_children(comm, -1);
  ++comm.clique->aborted;
  leave_others(comm);
  *comm.aborted = true;
  *comm.under_way -= static_cast<int>(comm.launching.size());
  comm.launching.clear();
  under_way.push_back(comm.under_way);
  return true;
}

void FakeNccl::end(nccl::CommHandle handle) {
  if (comms_.at(handle).is_inside) world_.complain("a call uses a communicator that is freed");
  FakeNcclWorld::leave(*comms_.at(handle).clique);
  comms_.erase(handle);
}

bool FakeNccl::abort(std::span<const nccl::CommHandle* const> comms,
                     const std::function<bool()>& calls_end) noexcept {
  while (holds_aborts) std::this_thread::yield();
  std::vector<std::shared_ptr<int>> under_way;
  std::vector<nccl::CommHandle> ended;
  std::vector<const NcclClique*> cliques;
  {
    const Lock held = lock();
    for (const nccl::CommHandle* handle : comms)
      if (*handle != nullptr && begin_to_abort(*handle, under_way)) {
        ended.push_back(*handle);
        if (!notices_aborts) cliques.push_back(comms_.at(*handle).clique);
      }
    for (const auto& [handle, comm] : comms_)
      if (!*comm.aborted && *comm.under_way > 0 && !ended.empty())
        world_.complain("ncclCommAbort waits for kernels of a communicator outside of its group");
  }
  if (!calls_end()) return false;
  wait_for_kernels(under_way);
  for (const NcclClique* const clique : cliques) wait_for_others(*clique, "ncclCommAbort");
  const Lock held = lock();
  for (const nccl::CommHandle handle : ended) end(handle);
  return true;
}

}  // namespace kolo::internal::backend
