// SPDX-License-Identifier: Apache-2.0
#include "backend/gpu/nccl/nccl_backend.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "backend/gpu/nccl/reduction.hpp"
#include "base/format.hpp"
#include "kolo/error.hpp"

namespace kolo::internal::backend::nccl {

bool NcclBackend::can_execute(const Batch& batch) {
  const OperationType type = batch.kind.type;
  if (type != OperationType::allreduce && type != OperationType::reducescatter) return true;
  return std::ranges::all_of(batch.tensors, [&](const BatchTensor* tensor) {
    return can_reduce(batch.kind.op, tensor->dtype);
  });
}

/// The smallest, and of those the first. Ranks that share communicators have created them in the
/// same order, so all of `ranks` find the same parent.
NcclBackend::Communicators::const_iterator NcclBackend::parent_of(
    const std::vector<int>& ranks) const {
  auto best = communicators_.end();
  for (auto candidate = communicators_.begin(); candidate != communicators_.end(); ++candidate)
    if (std::ranges::includes(candidate->first, ranks) &&
        (best == communicators_.end() || candidate->first.size() < best->first.size()))
      best = candidate;
  return best;
}

bool NcclBackend::has_parent(const std::vector<int>& ranks) const {
  return parent_of(ranks) != communicators_.end();
}

void NcclBackend::connect(const std::vector<int>& ranks, const UniqueId& id) {
  const auto parent = parent_of(ranks);
  if (parent != communicators_.end()) {
    communicators_.try_emplace(ranks, communicators_.at(parent->first), ranks,
                               options_.init_timeout);
    return;
  }
  const auto own = static_cast<int>(std::ranges::find(ranks, rank_) - ranks.begin());
  communicators_.try_emplace(ranks, library_, gpu_, worker_, ranks, own, id, options_.init_timeout);
}

std::unique_ptr<Execution> NcclBackend::start(Batch batch) {
  const LaunchContext context{gpu_, cpu_, communicators_.at(batch.ranks), order_, rank_};
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

void NcclBackend::abort() noexcept {
  for (auto& [ranks, communicator] : communicators_) communicator.abort();
}

}  // namespace kolo::internal::backend::nccl
