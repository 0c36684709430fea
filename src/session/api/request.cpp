// SPDX-License-Identifier: Apache-2.0
#include "session/api/request.hpp"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "base/dtype.hpp"
#include "base/enumerators.hpp"
#include "base/format.hpp"
#include "base/overlap.hpp"
#include "kolo/error.hpp"
#include "session/job/mpi_environment.hpp"

namespace kolo::internal::session {
namespace {

constexpr std::size_t max_shown_bytes = 64;  // the shown part of a name that is too long

bool has_meaning(ReduceOp op, DType dtype) {
  if (op == ReduceOp::adasum) return is_floating(dtype);
  const bool sums = op == ReduceOp::sum || op == ReduceOp::average;
  return dtype != DType::boolean || !sums;
}

/// False for a value that is no enumerator, which only a cast can produce.
template <typename Enumeration>
bool is_value(Enumeration value) {
  return is_enumerator<Enumeration>(static_cast<std::underlying_type_t<Enumeration>>(value));
}

bool overlap(const void* a, const void* b, std::size_t bytes) {
  const auto* first = static_cast<const std::byte*>(a);
  const auto* second = static_cast<const std::byte*>(b);
  const std::less<> before;
  return a != b && before(first, second + bytes) && before(second, first + bytes);
}

/// A spare submission of this thread, whose memory the next request reuses. It has no destructor,
/// because exit handlers and destructors of static objects may still submit after the thread_local
/// objects of their thread are destroyed. `FreeSpare` frees the spare.
struct Spare {
  Submission* submission = nullptr;
  bool is_kept = true;
};
thread_local Spare spare;

struct FreeSpare {
  FreeSpare() = default;
  ~FreeSpare() {
    spare.is_kept = false;
    const std::unique_ptr<Submission> freed(std::exchange(spare.submission, nullptr));
  }
  FreeSpare& operator=(FreeSpare&&) = delete;
};

}  // namespace

void KeepForNext::operator()(Submission* submission) const {
  thread_local const FreeSpare at_end_of_thread;
  std::unique_ptr<Submission> done(submission);
  if (!spare.is_kept) return;
  done->clear();
  const std::unique_ptr<Submission> previous(std::exchange(spare.submission, done.release()));
}

Draft make_draft() {
  if (spare.submission == nullptr) return Draft(std::make_unique<Submission>().release());
  return Draft(std::exchange(spare.submission, nullptr));
}

Rows rows_of(const Shape& shape) {
  if (shape.dimensions() == 0) return {1, 1};
  std::int64_t row_elements = 1;
  for (std::size_t i = 1; i < shape.dimensions(); ++i) row_elements *= shape[i];
  return {shape[0], row_elements};
}

namespace {

/// A replay of a graph repeats NCCL's calls and pointers, and nothing else of an operation.
bool can_be_captured(OperationType type) {
  return type == OperationType::allreduce || type == OperationType::reducescatter ||
         type == OperationType::broadcast;
}

std::string not_in_a_capture(std::string_view what_to_do) {
  return fmt::format(
      "its stream is being captured into a CUDA graph: {}, or submit it before or after the "
      "capture",
      what_to_do);
}

void require_capturable(OperationType type) {
  if (can_be_captured(type)) return;
  throw InvalidArgument(not_in_a_capture(fmt::format(
      "allreduces, broadcasts and reducescatters can be captured, {}s cannot. Use those",
      to_string(type))));
}

}  // namespace

Device device_of(OperationType type, const backend::gpu::ReadyMark& mark) {
  if (mark.captured()) return gpu_of_graph;
  return GraphWarmUp::any() && can_be_captured(type) ? gpu_before_graph : own_gpu;
}

std::shared_ptr<const backend::gpu::ReadyMark> mark_tensor(Engine& engine, OperationType type,
                                                           const std::string& name, Device device) {
  const int rank = engine.topology().rank;
  const auto operation = [&] {
    return fmt::format("{} \"{}\" on rank {}", to_string(type), name, rank);
  };
  try {
    auto mark = engine.devices().mark(device);
    if (mark->captured()) require_capturable(type);
    return mark;
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(
        fmt::format("{}: the tensor is on {}: {}", operation(), to_string(device), error.what()),
        name, {rank});
  } catch (const BackendError& error) {
    throw BackendError(fmt::format("{}, {}: {}", operation(), to_string(device), error.what()),
                       name, {rank});
  }
}

Request::Request(OperationType type, const std::string& name, const ProcessSet& set)
    : engine_(type, name), set_(engine_->process_sets().find_for_member(set, type, name)) {
  draft_->set = set_.id;
  draft_->descriptor.type = type;
  // Limited, because names travel to all ranks, several of them in one message.
  if (name.size() > max_name_bytes) {
    const int rank = engine_->topology().rank;
    throw InvalidArgument(
        fmt::format("{} \"{}...\" on rank {}: the name has {} bytes, at most {} are allowed",
                    to_string(type), name.substr(0, max_shown_bytes), rank, name.size(),
                    max_name_bytes),
        name, {rank});
  }
  draft_->name = name;
}

void Request::refuse(std::string_view why) const {
  const int rank = engine_->topology().rank;
  throw InvalidArgument(fmt::format("{} \"{}\" on rank {}: {}", to_string(draft_->descriptor.type),
                                    draft_->name, rank, why),
                        draft_->name, {rank});
}

void Request::check(const ConstTensorView& tensor) const {
  if (!is_value(tensor.dtype()) || !is_value(tensor.device().type))
    refuse(fmt::format("invalid dtype {} or device type {}", static_cast<int>(tensor.dtype()),
                       static_cast<int>(tensor.device().type)));
  for (const std::int64_t length : tensor.shape().lengths())
    if (length < 0) refuse("shape " + to_string(tensor.shape()) + " has a negative length");
  // Checked before the elements are counted, because the count could overflow.
  if (!extent_of(tensor.shape().lengths()))
    refuse(fmt::format("shape {} has more than {} elements", to_string(tensor.shape()),
                       max_tensor_elements));
  if (tensor.elements() > 0 && tensor.data() == nullptr)
    refuse("the tensor has elements, but its data is null");
}

void Request::add_spec(const ConstTensorView& tensor, const Shape& shape) {
  check(tensor);
  const std::int64_t extent = *extent_of(tensor.shape().lengths());
  if (extent > max_tensor_elements - extent_)
    refuse(fmt::format("the tensors have more than {} elements", max_tensor_elements));
  extent_ += extent;
  Descriptor& descriptor = draft_->descriptor;
  if (descriptor.tensors.empty()) {
    mark(tensor.device());
  } else if (tensor.device() != device_) {
    refuse("the tensors of a group are on " + to_string(device_) + " and on " +
           to_string(tensor.device()));
  }
  descriptor.tensors.push_back({tensor.dtype(), shape});
}

void Request::mark(Device device) {
  device_ = device;
  if (device.type == DeviceType::cpu) return;
  const OperationType type = draft_->descriptor.type;
  ready_ = mark_tensor(*engine_, type, draft_->name, device);
  draft_->descriptor.device = device_of(type, *ready_);
}

void Request::add(const ConstTensorView& input, const TensorView& output) {
  add_spec(input, input.shape());
  if (input.data() != output.data() || input.dtype() != output.dtype() ||
      input.shape() != output.shape()) {
    check(output);
    if (input.dtype() != output.dtype() || input.elements() != output.elements() ||
        input.device() != output.device())
      refuse(fmt::format("the input is {} {} on {}, the output {} {} on {}",
                         to_string(input.dtype()), to_string(input.shape()),
                         to_string(input.device()), to_string(output.dtype()),
                         to_string(output.shape()), to_string(output.device())));
    if (overlap(input.data(), output.data(),
                static_cast<std::size_t>(input.elements()) * size_of(input.dtype())))
      refuse("input and output overlap");
  }
  backend::BatchTensor& member = draft_->members.emplace_back();
  member.input = input.data();
  member.output = output.data();
  member.dtype = input.dtype();
  member.rows = input.elements();
  member.ready = ready_;
}

void Request::check_disjoint() const {
  const auto& members = draft_->members;
  const auto both = find_overlap_of_written(members.size(), [&](std::size_t i) {
    const backend::BatchTensor& member = members[i];
    return MemoryUse::of(member.output, member.rows, member.dtype, i, /*written=*/true);
  });
  if (both)
    refuse(fmt::format("tensors {} and {} of the group share memory: each needs its own",
                       both->first, both->second));
}

void Request::check_disjoint(std::span<const TensorView> outputs) const {
  std::vector<MemoryUse> uses;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const backend::BatchTensor& member = draft_->members[i];
    uses.push_back(MemoryUse::of(member.input, member.rows * member.row_elements, member.dtype, i,
                                 /*written=*/false));
    uses.push_back(MemoryUse::of(outputs[i], i, /*written=*/true));
  }
  if (const auto both = find_overlap(std::move(uses)))
    refuse(
        fmt::format("output {} of the group shares memory with input or output {}: it needs its "
                    "own",
                    both->first, both->second));
}

void Request::add_rows(const ConstTensorView& input, bool any_rows, void* output,
                       Allocator allocate) {
  std::vector<std::int64_t> lengths(input.shape().lengths().begin(), input.shape().lengths().end());
  if (any_rows && lengths.empty()) lengths.push_back(1);
  if (any_rows) lengths.front() = any_length;
  add_spec(input, Shape(lengths));
  const Rows rows = rows_of(input.shape());
  backend::BatchTensor& member = draft_->members.emplace_back();
  member.input = input.data();
  member.output = output;
  member.dtype = input.dtype();
  member.rows = rows.rows;
  member.row_elements = rows.row_elements;
  member.allocate = std::move(allocate);
  member.ready = ready_;
}

void Request::add_text(std::string& text) { draft_->members.emplace_back().text = &text; }

void Request::check_reduction() {
  const Descriptor& descriptor = draft_->descriptor;
  if (!is_value(descriptor.op) || !is_value(descriptor.compression))
    refuse(fmt::format("invalid operator {} or compression {}", static_cast<int>(descriptor.op),
                       static_cast<int>(descriptor.compression)));
  if (!std::isfinite(descriptor.prescale) || !std::isfinite(descriptor.postscale))
    refuse(fmt::format("prescale {} and postscale {} must be finite", descriptor.prescale,
                       descriptor.postscale));
  for (const TensorSpec& tensor : descriptor.tensors)
    if (!has_meaning(descriptor.op, tensor.dtype))
      refuse(
          fmt::format("{} elements have no {}", to_string(tensor.dtype), to_string(descriptor.op)));
}

void Request::set_divisor(AverageOver over) {
  if (!is_value(over)) refuse(fmt::format("invalid average_over {}", static_cast<int>(over)));
  draft_->descriptor.average_over = over;
}

void Request::set_root(int root) {
  draft_->descriptor.root = root;
  for (const int member : set_.ranks)
    if (member == root) return;
  refuse(
      fmt::format("root {} is not one of the ranks {}", root, to_string(RankSet::of(set_.ranks))));
}

OperationPtr Request::submit(bool waits) && {
  const Descriptor& descriptor = draft_->descriptor;
  if (descriptor.device == gpu_of_graph &&
      !engine_->launched().is_prepared_for_graphs(draft_->set, draft_->name, descriptor.tensors))
    refuse(not_in_a_capture(
        "run the step within a kolo::GraphWarmUp once before, on all ranks, where NCCL 2.27 or "
        "later must execute the operation with the same name and tensors"));
  return engine_->submit(std::move(*draft_), waits);
}

}  // namespace kolo::internal::session
