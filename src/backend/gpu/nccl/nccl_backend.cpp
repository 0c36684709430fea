// SPDX-License-Identifier: Apache-2.0
#include "backend/gpu/nccl/nccl_backend.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/format.hpp"
#include "base/rank_set.hpp"
#include "kolo/error.hpp"

namespace kolo::internal::backend::nccl {
namespace {

std::string nccl_text(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version % 10000 / 100, version % 100);
}

std::shared_ptr<Collective> make_collective(const LaunchContext& context, Batch batch) {
  switch (batch.kind.type) {
    case OperationType::allreduce: return make_allreduce(context, std::move(batch));
    case OperationType::reducescatter: return make_reducescatter(context, std::move(batch));
    case OperationType::allgather:
    case OperationType::alltoall: return make_gather(context, std::move(batch));
    case OperationType::broadcast: return make_broadcast(context, std::move(batch));
    default: break;
  }
  throw InvalidArgument(fmt::format("\"{}\" is no batch of GPU tensors", to_string(batch.kind)));
}

}  // namespace

/// All ranks evaluate the same infos in the same order, so they select the same path and report the
/// same reason.
GpuPath select_path(std::span<const int> ranks, std::span<const GpuInfo> infos) {
  for (std::size_t i = 0; i < infos.size(); ++i)
    if (infos[i].why_no_nccl.front() != '\0')
      return {false, fmt::format("rank {}: {}", ranks[i], infos[i].why_no_nccl.data())};
  for (std::size_t i = 1; i < infos.size(); ++i)
    if (infos[i].nccl_version != infos.front().nccl_version)
      return {false, fmt::format("rank {} has NCCL {}, rank {} has NCCL {}", ranks.front(),
                                 nccl_text(infos.front().nccl_version), ranks[i],
                                 nccl_text(infos[i].nccl_version))};
  for (std::size_t i = 0; i < infos.size(); ++i)
    for (std::size_t j = i + 1; j < infos.size(); ++j)
      if (infos[i].uuid == infos[j].uuid &&
          (infos[i].may_share_gpu == 0 || infos[j].may_share_gpu == 0))
        return {false,
                fmt::format("ranks {} and {} use the same GPU (cuda:{} and cuda:{}, PCI {}): "
                            "give each rank a GPU of its own",
                            ranks[i], ranks[j], infos[i].device, infos[j].device,
                            infos[i].pci_bus_id.data())};
  return {true, ""};
}

/// False for batches that NCCL cannot execute; they travel through the host.
bool NcclBackend::can_execute(const Batch& batch) {
  switch (batch.kind.type) {
    case OperationType::allreduce:
    case OperationType::reducescatter: break;
    case OperationType::allgather:
    case OperationType::alltoall:
    case OperationType::broadcast: return true;
    default: return false;
  }
  // NCCL lacks integers of 16 bits and Adasum. The packing kernel cannot convert integers to i64,
  // which averages require.
  return std::ranges::all_of(batch.tensors, [&](const BatchTensor* tensor) {
    return batch.kind.op != ReduceOp::adasum && tensor->dtype != DType::u16 &&
           tensor->dtype != DType::i16 &&
           (batch.kind.op != ReduceOp::average || !is_short_integer(tensor->dtype));
  });
}

NcclBackend::~NcclBackend() {
  // A launch that does not return may use its communicator for ever.
  if (!group_.stop_launching()) {
    static auto& left_behind = *new std::vector<Entries>;  // never destroyed
    left_behind.push_back(std::move(entries_));
    entries_.clear();
  }
  // Destroying the parent of a half-made communicator would wait forever.
  if (std::ranges::any_of(entries_, [](const auto& entry) {
        const auto& [ranks, made] = entry;
        return made.communicator.is_being_made() ||
               (made.for_graphs && made.for_graphs->is_being_made());
      }))
    group_.abort();
  // Each destruction waits for the other ranks, so all ranks need the same order. The order in
  // which a map destroys its elements is not specified.
  while (!entries_.empty()) entries_.erase(entries_.begin());
}

/// The smallest communicator that contains `ranks`; among several of that size, the first. Ranks
/// that share communicators have connected them in the same order, so all of `ranks` find the same
/// parent. A communicator that no batch has used does not qualify: its other ranks may never create
/// it.
NcclBackend::Entries::iterator NcclBackend::parent_of(const std::vector<int>& ranks) {
  auto best = entries_.end();
  if (!library().can_derive()) return best;
  for (auto candidate = entries_.begin(); candidate != entries_.end(); ++candidate)
    if (candidate->second.has_batches && std::ranges::includes(candidate->first, ranks) &&
        (best == entries_.end() || candidate->first.size() < best->first.size()))
      best = candidate;
  return best;
}

bool NcclBackend::has_parent(const std::vector<int>& ranks) {
  return parent_of(ranks) != entries_.end();
}

void NcclBackend::connect(const std::vector<int>& ranks, const UniqueId& id) {
  const auto parent = parent_of(ranks);
  if (parent != entries_.end()) {
    entries_.try_emplace(ranks, group_, parent->second.communicator, ranks, settings_.nccl_timeout);
    return;
  }
  const auto own = static_cast<int>(std::ranges::find(ranks, rank_) - ranks.begin());
  entries_.try_emplace(ranks, group_, ranks, own, id, settings_.nccl_timeout);
}

/// Notes the batch, and the place of its communicator among those of the set. Ranks join one after
/// the other, so all ranks of a communicator took part in the batches of earlier communicators, and
/// agree on its place.
void NcclBackend::note_use(Entry& entry, const Batch& batch) {
  const bool is_first = !std::exchange(entry.has_batches, true);
  if (batch.ranks == batch.set) {
    entry.lacks_ranks_of.clear();
    return;
  }
  if (is_first) entry.lacks_ranks_of = batch.set;
  if (entry.lacks_ranks_of != batch.set || (!is_first && entry.used_after == batch.joins)) return;
  entry.used_after = batch.joins;
  entry.place = static_cast<int>(std::ranges::count_if(entries_, [&](const auto& other) {
    const Entry& before = other.second;
    return &before != &entry && before.has_batches && before.lacks_ranks_of == batch.set &&
           before.used_after == batch.joins && std::ranges::includes(other.first, batch.ranks);
  }));
}

/// True if the communicator is no longer needed. Called at a batch of all ranks of the set. The
/// decision depends on values that all ranks of the communicator know, even a rank that had joined
/// while the others used another communicator.
bool NcclBackend::is_over(const Entry& entry, const Batch& batch) {
  constexpr int kept = 2;  // for each set; a communicator of few ranks takes as much memory as any
  if (!entry.has_batches || entry.lacks_ranks_of != batch.set) return false;
  return entry.place >= kept || batch.joins > entry.used_after + 1;
}

/// The communicators to retire once all ranks of the batch's set are back: those that lack ranks of
/// the set, unless the next epoch will need them if ranks join in the same order. If NCCL cannot
/// shrink, none is retired, since it could not be created again. Communicators without batches
/// whose parent is retired are retired too, and get another parent: other ranks may never create
/// the old one again.
std::vector<Communicator*> NcclBackend::to_retire(const Batch& batch) {
  std::vector<Communicator*> found;
  if (batch.ranks != batch.set || !library().can_derive()) return found;
  for (auto& [ranks, entry] : entries_) {
    if (is_over(entry, batch)) found.push_back(&entry.communicator);
  }
  const std::vector<Communicator*> with_batches = found;
  const auto is_retired = [&](const Communicator* communicator) {
    return std::ranges::find(with_batches, communicator) != with_batches.end();
  };
  for (auto& [ranks, entry] : entries_) {
    if (is_retired(&entry.communicator))
      entry.has_batches = false;
    else if (!entry.has_batches && is_retired(entry.communicator.parent()))
      found.push_back(&entry.communicator);
  }
  return found;
}

Communicator* NcclBackend::for_graphs(Entry& entry, const Batch& batch) {
  if (!is_for_graphs(batch.kind.device)) return nullptr;
  if (batch.ranks != batch.set && batch.kind.device == gpu_of_graph)
    throw BackendError(fmt::format(
        "\"{}\" is captured into a CUDA graph, but only ranks {} of {} take part, since "
        "the others have joined: a graph needs all",
        to_string(batch.kind), to_string(RankSet::of(batch.ranks)),
        to_string(RankSet::of(batch.set))));
  if (batch.ranks != batch.set || !library().can_derive()) return nullptr;
  if (!entry.for_graphs)
    entry.for_graphs.emplace(group_, entry.communicator, batch.ranks, settings_.nccl_timeout);
  return &*entry.for_graphs;
}

std::unique_ptr<Execution> NcclBackend::start(Batch batch) {
  Entry& entry = entries_.at(batch.ranks);
  note_use(entry, batch);
  Communicator* const for_graphs = this->for_graphs(entry, batch);
  // A capture may fuse what the warm-up did not. A reducescatter needs room for the results, too.
  const auto reserve = 2 * static_cast<std::size_t>(settings_.fusion_threshold);
  const LaunchContext context{
      .gpu = gpu_,
      .stream = for_graphs != nullptr ? gpu_.graph_stream() : gpu_.stream_of(batch.ranks),
      .cpu = cpu_,
      .communicator = for_graphs != nullptr ? *for_graphs : entry.communicator,
      .order = order_,
      .rank = rank_,
      .blocking_wait = settings_.gpu_blocking_wait && for_graphs == nullptr,
      .reserve = for_graphs != nullptr ? reserve : 0,
      .to_retire = to_retire(batch)};
  return std::make_unique<GpuExecution>(context, make_collective(context, std::move(batch)));
}

}  // namespace kolo::internal::backend::nccl
