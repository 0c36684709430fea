// SPDX-License-Identifier: Apache-2.0
#include "session/api/request.hpp"

#include <fmt/format.h>

#include <cmath>

#include "base/format.hpp"
#include "kolo/error.hpp"

namespace kolo::internal::session {
namespace {

bool has_meaning(ReduceOp op, DType dtype) {
  if (op == ReduceOp::adasum) return is_floating(dtype);
  const bool sums = op == ReduceOp::sum || op == ReduceOp::average;
  return dtype != DType::boolean || !sums;
}

bool overlap(const void* a, const void* b, std::size_t bytes) {
  const auto* first = static_cast<const std::byte*>(a);
  const auto* second = static_cast<const std::byte*>(b);
  const std::less<> before;
  return a != b && before(first, second + bytes) && before(second, first + bytes);
}

thread_local std::unique_ptr<Submission> spare;

}  // namespace

void KeepForNext::operator()(Submission* submission) const {
  submission->clear();
  spare.reset(submission);
}

Draft make_draft() {
  if (spare == nullptr) spare = std::make_unique<Submission>();
  return Draft(spare.release());
}

Rows rows_of(const Shape& shape) {
  if (shape.dimensions() == 0) return {1, 1};
  std::int64_t row_elements = 1;
  for (std::size_t i = 1; i < shape.dimensions(); ++i) row_elements *= shape[i];
  return {shape[0], row_elements};
}

Request::Request(OperationType type, const std::string& name, const ProcessSet& set)
    : engine_(type, name), set_(engine_->process_sets().find_for_member(set, type, name)) {
  draft_->name = name;
  draft_->set = set_.id;
  draft_->descriptor.type = type;
}

std::string Request::in_words() const {
  return fmt::format("{} \"{}\" on rank {}", to_string(draft_->descriptor.type), draft_->name,
                     engine_->topology().rank);
}

void Request::refuse(std::string_view why) const {
  throw InvalidArgument(fmt::format("{}: {}", in_words(), why), draft_->name,
                        {engine_->topology().rank});
}

void Request::check(const ConstTensorView& tensor) const {
  for (const std::int64_t length : tensor.shape().lengths())
    if (length < 0) refuse("shape " + to_string(tensor.shape()) + " has a negative length");
  if (tensor.elements() > 0 && tensor.data() == nullptr)
    refuse("the tensor has elements, but its data is null");
}

void Request::add_spec(const ConstTensorView& tensor, const Shape& shape) {
  check(tensor);
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
  draft_->descriptor.device = own_gpu;
  try {
    ready_ = engine_->devices().mark(device);
  } catch (const InvalidArgument& error) {
    refuse(fmt::format("the tensor is on {}: {}", to_string(device), error.what()));
  } catch (const BackendError& error) {
    throw BackendError(fmt::format("{}, {}: {}", in_words(), to_string(device), error.what()),
                       draft_->name, {engine_->topology().rank});
  }
}

void Request::add(const ConstTensorView& input, const TensorView& output) {
  add_spec(input, input.shape());
  if (input.data() != output.data() || input.dtype() != output.dtype()) {
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

void Request::check_reduction() const {
  const Descriptor& descriptor = draft_->descriptor;
  if (!std::isfinite(descriptor.prescale) || !std::isfinite(descriptor.postscale))
    refuse(fmt::format("prescale {} and postscale {} must be finite", descriptor.prescale,
                       descriptor.postscale));
  for (const TensorSpec& tensor : descriptor.tensors)
    if (!has_meaning(descriptor.op, tensor.dtype))
      refuse(
          fmt::format("{} elements have no {}", to_string(tensor.dtype), to_string(descriptor.op)));
}

void Request::set_root(int root) {
  draft_->descriptor.root = root;
  for (const int member : set_.ranks)
    if (member == root) return;
  refuse(
      fmt::format("root {} is not one of the ranks {}", root, to_string(RankSet::of(set_.ranks))));
}

OperationPtr Request::submit(bool waits) && { return engine_->submit(std::move(*draft_), waits); }

}  // namespace kolo::internal::session
