// The public face of the collectives in which every rank has the same shape: allreduce, broadcast,
// barrier, join.
#include "kolo/collectives.hpp"

#include "session/request.hpp"

namespace kolo {
namespace {

using session::Request;

Request describe_allreduce(const ConstTensorView& input, const TensorView& output,
                           const AllreduceOptions& options, std::int64_t step) {
  Request request(OperationType::allreduce, options.name, options.process_set);
  request.add(input, output);
  request.set_reduction(options.op, options.prescale, options.postscale, options.compression);
  if (options.op == ReduceOp::average) request.descriptor().average_over = options.average_over;
  request.descriptor().step = step;
  return request;
}

Request describe_group(std::span<const TensorView> tensors, const GroupedAllreduceOptions& options,
                       std::int64_t step) {
  Request request(OperationType::allreduce, options.name, options.process_set);
  if (tensors.empty()) request.refuse("a group needs at least one tensor");
  for (const TensorView& tensor : tensors) request.add(tensor, tensor);
  request.set_reduction(options.op, options.prescale, options.postscale, options.compression);
  if (options.op == ReduceOp::average) request.descriptor().average_over = options.average_over;
  request.descriptor().alone = options.fuse_exactly;
  request.descriptor().step = step;
  return request;
}

Request describe_broadcast(const ConstTensorView& input, const TensorView& output, int root,
                           const BroadcastOptions& options) {
  Request request(OperationType::broadcast, options.name, options.process_set);
  request.add(input, output);
  request.set_root(root);
  return request;
}

Request describe_broadcast(std::string& text, int root, const BroadcastOptions& options) {
  Request request(OperationType::broadcast_text, options.name, options.process_set);
  request.add_text(text);
  request.set_root(root);
  return request;
}

Request describe_barrier(const BarrierOptions& options) {
  return {OperationType::barrier, options.name, options.process_set};
}

Future<void> submit(Request request) { return Future<void>(std::move(request).submit()); }

}  // namespace

void allreduce(TensorView tensor, const AllreduceOptions& options) {
  describe_allreduce(tensor, tensor, options, 0).run();
}

Future<void> allreduce_async(TensorView tensor, const AllreduceOptions& options) {
  return submit(describe_allreduce(tensor, tensor, options, 0));
}

void allreduce(ConstTensorView input, TensorView output, const AllreduceOptions& options) {
  describe_allreduce(input, output, options, 0).run();
}

Future<void> allreduce_async(ConstTensorView input, TensorView output,
                             const AllreduceOptions& options) {
  return submit(describe_allreduce(input, output, options, 0));
}

void grouped_allreduce(std::span<const TensorView> tensors,
                       const GroupedAllreduceOptions& options) {
  describe_group(tensors, options, 0).run();
}

void grouped_allreduce(std::initializer_list<TensorView> tensors,
                       const GroupedAllreduceOptions& options) {
  grouped_allreduce(std::span(tensors.begin(), tensors.size()), options);
}

Future<void> grouped_allreduce_async(std::span<const TensorView> tensors,
                                     const GroupedAllreduceOptions& options) {
  return submit(describe_group(tensors, options, 0));
}

Future<void> grouped_allreduce_async(std::initializer_list<TensorView> tensors,
                                     const GroupedAllreduceOptions& options) {
  return grouped_allreduce_async(std::span(tensors.begin(), tensors.size()), options);
}

void broadcast(TensorView tensor, int root, const BroadcastOptions& options) {
  describe_broadcast(tensor, tensor, root, options).run();
}

Future<void> broadcast_async(TensorView tensor, int root, const BroadcastOptions& options) {
  return submit(describe_broadcast(tensor, tensor, root, options));
}

void broadcast(ConstTensorView input, TensorView output, int root,
               const BroadcastOptions& options) {
  describe_broadcast(input, output, root, options).run();
}

Future<void> broadcast_async(ConstTensorView input, TensorView output, int root,
                             const BroadcastOptions& options) {
  return submit(describe_broadcast(input, output, root, options));
}

void broadcast(std::string& text, int root, const BroadcastOptions& options) {
  describe_broadcast(text, root, options).run();
}

Future<void> broadcast_async(std::string& text, int root, const BroadcastOptions& options) {
  return submit(describe_broadcast(text, root, options));
}

void barrier(const BarrierOptions& options) { describe_barrier(options).run(); }

void barrier(const ProcessSet& set) { barrier({.process_set = set}); }

Future<void> barrier_async(const BarrierOptions& options) {
  return submit(describe_barrier(options));
}

int join() { return join_async().get(); }

Future<int> join_async() {
  auto last = std::make_unique<int>(-1);
  Request request(OperationType::join, "", world());
  request.on_answer([&value = *last](std::int64_t rank) { value = static_cast<int>(rank); });
  return {std::move(request).submit(), std::move(last)};
}

namespace detail {

std::shared_ptr<Operation> submit_allreduce(ConstTensorView input, TensorView output,
                                            const AllreduceOptions& options, std::int64_t step) {
  return describe_allreduce(input, output, options, step).submit();
}

std::shared_ptr<Operation> submit_grouped_allreduce(std::span<const TensorView> tensors,
                                                    const GroupedAllreduceOptions& options,
                                                    std::int64_t step) {
  return describe_group(tensors, options, step).submit();
}

std::shared_ptr<Operation> submit_broadcast(ConstTensorView input, TensorView output, int root,
                                            const BroadcastOptions& options) {
  return describe_broadcast(input, output, root, options).submit();
}

}  // namespace detail

}  // namespace kolo
