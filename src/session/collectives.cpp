// The public face of the collectives: checks arguments, describes the operation and submits it.
#include "kolo/collectives.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <string_view>

#include "base/format.hpp"
#include "kolo/error.hpp"
#include "session/current.hpp"

namespace kolo {
namespace {

using session::Engine;
using session::OperationPtr;

/// An operation that is ready to be submitted.
struct Request {
  std::shared_ptr<Engine> engine;
  std::string name;
  Descriptor descriptor;
  backend::Member member;
};

[[noreturn]] void refuse(const Request& request, std::string_view why) {
  throw InvalidArgument(fmt::format("{} \"{}\" on rank {}: {}", to_string(request.descriptor.type),
                                    request.name, request.engine->topology().rank, why),
                        request.name, {request.engine->topology().rank});
}

void check_tensor(const Request& request) {
  for (const std::int64_t length : request.descriptor.shape.lengths())
    if (length < 0)
      refuse(request, "shape " + to_string(request.descriptor.shape) + " has a negative length");
  if (request.member.elements > 0 && request.member.data == nullptr)
    refuse(request, "the tensor has elements, but its data is null");
  if (request.descriptor.device.type != DeviceType::cpu)
    refuse(request, "the tensor is on " + to_string(request.descriptor.device) +
                        ", and this build of Kolo works on CPU tensors only");
}

void check_root(const Request& request) {
  const int size = request.engine->topology().size;
  if (request.descriptor.root < 0 || request.descriptor.root >= size)
    refuse(request,
           fmt::format("root {} is not one of the ranks 0-{}", request.descriptor.root, size - 1));
}

Request describe(OperationType type, const std::string& name) {
  Request request{session::current_engine(), name, {}, {}};
  request.descriptor.type = type;
  return request;
}

void describe_tensor(Request& request, const TensorView& tensor) {
  request.descriptor.dtype = tensor.dtype();
  request.descriptor.shape = tensor.shape();
  request.descriptor.device = tensor.device();
  request.member = {tensor.data(), tensor.elements(), nullptr};
  check_tensor(request);
}

Request describe_allreduce(const TensorView& tensor, const AllreduceOptions& options,
                           std::int64_t step) {
  Request request = describe(OperationType::allreduce, options.name);
  request.descriptor.op = options.op;
  request.descriptor.prescale = options.prescale;
  request.descriptor.postscale = options.postscale;
  request.descriptor.step = step;
  describe_tensor(request, tensor);
  if (!std::isfinite(options.prescale) || !std::isfinite(options.postscale))
    refuse(request, fmt::format("prescale {} and postscale {} must be finite", options.prescale,
                                options.postscale));
  if (tensor.dtype() == DType::boolean)
    refuse(request, fmt::format("booleans have no {}", to_string(options.op)));
  return request;
}

Request describe_broadcast(const TensorView& tensor, int root, const BroadcastOptions& options) {
  Request request = describe(OperationType::broadcast, options.name);
  request.descriptor.root = root;
  describe_tensor(request, tensor);
  check_root(request);
  return request;
}

Request describe_broadcast(std::string& text, int root, const BroadcastOptions& options) {
  Request request = describe(OperationType::broadcast_text, options.name);
  request.descriptor.root = root;
  request.member.text = &text;
  check_root(request);
  return request;
}

OperationPtr submit(Request request) {
  return request.engine->submit(request.name, std::move(request.descriptor), request.member, false);
}

Future<void> submit_async(Request request) { return Future<void>(submit(std::move(request))); }

void submit_and_wait(Request request) {
  const OperationPtr operation =
      request.engine->submit(request.name, std::move(request.descriptor), request.member, true);
  request.engine->wait(*operation, std::chrono::steady_clock::time_point::max());
  if (operation->error()) std::rethrow_exception(operation->error());
}

}  // namespace

void allreduce(TensorView tensor, const AllreduceOptions& options) {
  submit_and_wait(describe_allreduce(tensor, options, 0));
}

Future<void> allreduce_async(TensorView tensor, const AllreduceOptions& options) {
  return submit_async(describe_allreduce(tensor, options, 0));
}

void broadcast(TensorView tensor, int root, const BroadcastOptions& options) {
  submit_and_wait(describe_broadcast(tensor, root, options));
}

void broadcast(std::string& text, int root, const BroadcastOptions& options) {
  submit_and_wait(describe_broadcast(text, root, options));
}

Future<void> broadcast_async(TensorView tensor, int root, const BroadcastOptions& options) {
  return submit_async(describe_broadcast(tensor, root, options));
}

Future<void> broadcast_async(std::string& text, int root, const BroadcastOptions& options) {
  return submit_async(describe_broadcast(text, root, options));
}

void barrier(const BarrierOptions& options) {
  submit_and_wait(describe(OperationType::barrier, options.name));
}

Future<void> barrier_async(const BarrierOptions& options) {
  return submit_async(describe(OperationType::barrier, options.name));
}

namespace detail {

std::shared_ptr<Operation> submit_allreduce(TensorView tensor, const AllreduceOptions& options,
                                            std::int64_t step) {
  return submit(describe_allreduce(tensor, options, step));
}

}  // namespace detail

}  // namespace kolo
