// SPDX-License-Identifier: Apache-2.0
// Implements kolo/collectives.hpp. calls.cpp checks and submits the operations.
#include "kolo/collectives.hpp"

namespace kolo {

using detail::AllgatherCall;
using detail::AllreduceCall;
using detail::BroadcastCall;
using detail::GroupedAllreduceCall;
using detail::ReducescatterCall;
using detail::StringBroadcastCall;

void allreduce(TensorView tensor, const AllreduceOptions& options) {
  call(AllreduceCall{tensor, tensor, options});
}

Future<void> allreduce_async(TensorView tensor, const AllreduceOptions& options) {
  return call_async(AllreduceCall{tensor, tensor, options});
}

void allreduce(ConstTensorView input, TensorView output, const AllreduceOptions& options) {
  call(AllreduceCall{input, output, options});
}

Future<void> allreduce_async(ConstTensorView input, TensorView output,
                             const AllreduceOptions& options) {
  return call_async(AllreduceCall{input, output, options});
}

void grouped_allreduce(std::span<const TensorView> tensors,
                       const GroupedAllreduceOptions& options) {
  call(GroupedAllreduceCall{tensors, options});
}

void grouped_allreduce(std::initializer_list<TensorView> tensors,
                       const GroupedAllreduceOptions& options) {
  call(GroupedAllreduceCall{{tensors.begin(), tensors.size()}, options});
}

Future<void> grouped_allreduce_async(std::span<const TensorView> tensors,
                                     const GroupedAllreduceOptions& options) {
  return call_async(GroupedAllreduceCall{tensors, options});
}

Future<void> grouped_allreduce_async(std::initializer_list<TensorView> tensors,
                                     const GroupedAllreduceOptions& options) {
  return call_async(GroupedAllreduceCall{{tensors.begin(), tensors.size()}, options});
}

void reducescatter(ConstTensorView input, TensorView output, const ReducescatterOptions& options) {
  call(ReducescatterCall{{&input, 1}, {&output, 1}, options});
}

Future<void> reducescatter_async(ConstTensorView input, TensorView output,
                                 const ReducescatterOptions& options) {
  return call_async(ReducescatterCall{{&input, 1}, {&output, 1}, options});
}

void grouped_reducescatter(std::span<const ConstTensorView> inputs,
                           std::span<const TensorView> outputs,
                           const ReducescatterOptions& options) {
  call(ReducescatterCall{inputs, outputs, options});
}

Future<void> grouped_reducescatter_async(std::span<const ConstTensorView> inputs,
                                         std::span<const TensorView> outputs,
                                         const ReducescatterOptions& options) {
  return call_async(ReducescatterCall{inputs, outputs, options});
}

std::vector<std::string> allgather(const std::string& text, const AllgatherOptions& options) {
  const Gathered<char> gathered = allgather(std::span(text), options);
  std::vector<std::string> texts;
  auto next = gathered.values.begin();
  for (const std::int64_t count : gathered.counts) {
    texts.emplace_back(next, next + count);
    next += count;
  }
  return texts;
}

std::vector<std::vector<std::int64_t>> grouped_allgather(std::span<const ConstTensorView> tensors,
                                                         std::span<const Allocator> allocators,
                                                         const AllgatherOptions& options) {
  return grouped_allgather_async(tensors, allocators, options).get();
}

Future<std::vector<std::vector<std::int64_t>>> grouped_allgather_async(
    std::span<const ConstTensorView> tensors, std::span<const Allocator> allocators,
    const AllgatherOptions& options) {
  auto counts = std::make_unique<std::vector<std::vector<std::int64_t>>>(allocators.size());
  std::vector<Allocator> notes;
  for (std::size_t i = 0; i < allocators.size(); ++i)
    notes.push_back(detail::noting((*counts)[i], allocators[i]));
  return call_async(AllgatherCall{tensors, notes, options}, std::move(counts));
}

void broadcast(TensorView tensor, int root, const BroadcastOptions& options) {
  call(BroadcastCall{tensor, tensor, root, options});
}

Future<void> broadcast_async(TensorView tensor, int root, const BroadcastOptions& options) {
  return call_async(BroadcastCall{tensor, tensor, root, options});
}

void broadcast(ConstTensorView input, TensorView output, int root,
               const BroadcastOptions& options) {
  call(BroadcastCall{input, output, root, options});
}

Future<void> broadcast_async(ConstTensorView input, TensorView output, int root,
                             const BroadcastOptions& options) {
  return call_async(BroadcastCall{input, output, root, options});
}

void broadcast(std::string& text, int root, const BroadcastOptions& options) {
  call(StringBroadcastCall{text, root, options});
}

Future<void> broadcast_async(std::string& text, int root, const BroadcastOptions& options) {
  return call_async(StringBroadcastCall{text, root, options});
}

void barrier(const BarrierOptions& options) { call(detail::BarrierCall{options}); }

void barrier(const ProcessSet& set) { barrier({.process_set = set}); }

Future<void> barrier_async(const BarrierOptions& options) {
  return call_async(detail::BarrierCall{options});
}

int join() { return join_async().get(); }

Future<int> join_async() {
  auto last = std::make_unique<int>(-1);
  return call_async(detail::JoinCall{*last}, std::move(last));
}

}  // namespace kolo
