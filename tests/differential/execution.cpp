// SPDX-License-Identifier: Apache-2.0
#include "execution.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/dtype.hpp"
#include "kolo/error.hpp"

namespace kolo::internal::differential {
namespace {

bool is_broadcast_or_allreduce(Kind kind) {
  return kind == Kind::broadcast || kind == Kind::allreduce;
}

std::vector<TensorView> views_of(std::vector<Buffer>& buffers) {
  std::vector<TensorView> views;
  for (Buffer& buffer : buffers) views.push_back(buffer.view());
  return views;
}

std::vector<ConstTensorView> const_views_of(const std::vector<Buffer>& buffers) {
  std::vector<ConstTensorView> views;
  for (const Buffer& buffer : buffers) views.push_back(buffer.const_view());
  return views;
}

}  // namespace

Execution::Execution(const Operation& operation, const ProcessSet& set, int rank)
    : meant_(operation), own_(as_submitted(operation, rank)), set_(set), rank_(rank) {
  const std::size_t tensors = own_.tensors.size();
  in_place_ = own_.kind == Kind::allreduce && tensors > 1;
  if (is_broadcast_or_allreduce(own_.kind)) in_place_ = in_place_ || own_.in_place;
  for (std::size_t i = 0; i < tensors; ++i) {
    inputs_.push_back(input(own_, i, rank));
    Shape shape = inputs_.back().shape;
    if (own_.kind == Kind::reducescatter) shape = output(own_, i, rank).shape;
    outputs_.push_back(make_buffer(own_.tensors[i].dtype, shape));
  }
  if (own_.kind == Kind::broadcast_string) text_ = input_text(own_, rank);
  counts_.resize(tensors);
}

void Execution::submit() {
  if (own_.refused_first) try_what_is_refused();
  switch (own_.kind) {
    case Kind::allreduce:
    case Kind::reducescatter: return submit_reduction();
    case Kind::allgather:
    case Kind::alltoall: return submit_gathering();
    case Kind::broadcast: return submit_broadcast();
    case Kind::broadcast_string:
      future_ = broadcast_async(text_, own_.root, {.name = own_.name, .process_set = set_});
      return;
    case Kind::barrier: future_ = barrier_async({.name = own_.name, .process_set = set_}); return;
  }
}

void Execution::run() {
  if (own_.refused_first) try_what_is_refused();
  own_.refused_first = false;
  try {
    waited_ = run_at_once();
  } catch (...) {
    waited_ = true;
    error_ = std::current_exception();
  }
  if (waited_) return;
  submit();
  wait();
}

/// False if there is no such function worth testing.
bool Execution::run_at_once() {
  const BroadcastOptions options{.name = own_.name, .process_set = set_};
  switch (own_.kind) {
    case Kind::allreduce:
      if (inputs_.size() > 1) {
        grouped_allreduce(views_of(inputs_), group_options());
      } else if (in_place_) {
        allreduce(inputs_.front().view(), allreduce_options());
      } else {
        allreduce(inputs_.front().const_view(), outputs_.front().view(), allreduce_options());
      }
      return true;
    case Kind::broadcast:
      if (in_place_) {
        broadcast(inputs_.front().view(), own_.root, options);
      } else {
        broadcast(inputs_.front().const_view(), outputs_.front().view(), own_.root, options);
      }
      return true;
    case Kind::broadcast_string: broadcast(text_, own_.root, options); return true;
    case Kind::barrier: barrier({.name = own_.name, .process_set = set_}); return true;
    default: return false;
  }
}

void Execution::try_what_is_refused() {
  float value = 0.0F;
  try {
    allreduce(TensorView(&value, {-1}), {.name = own_.name, .process_set = set_});
    complaint_ = "a negative length was accepted";
  } catch (const InvalidArgument& error) {
    if (error.tensor() != own_.name) complaint_ = "InvalidArgument names " + error.tensor();
  }
}

AllreduceOptions Execution::allreduce_options() const {
  return {.name = own_.name,
          .op = own_.op,
          .prescale = own_.prescale,
          .postscale = own_.postscale,
          .compression = own_.compression,
          .average_over = own_.average_over,
          .process_set = set_};
}

GroupedAllreduceOptions Execution::group_options() const {
  return {.name = own_.name,
          .op = own_.op,
          .prescale = own_.prescale,
          .postscale = own_.postscale,
          .compression = own_.compression,
          .average_over = own_.average_over,
          .fuse_exactly = own_.fuse_exactly,
          .process_set = set_};
}

void Execution::submit_reduction() {
  if (own_.kind == Kind::reducescatter) {
    const ReducescatterOptions options{.name = own_.name,
                                       .op = own_.op,
                                       .prescale = own_.prescale,
                                       .postscale = own_.postscale,
                                       .compression = own_.compression,
                                       .process_set = set_};
    future_ = grouped_reducescatter_async(const_views_of(inputs_), views_of(outputs_), options);
  } else if (inputs_.size() > 1) {
    future_ = grouped_allreduce_async(views_of(inputs_), group_options());
  } else if (in_place_) {
    future_ = allreduce_async(inputs_.front().view(), allreduce_options());
  } else {
    future_ =
        allreduce_async(inputs_.front().const_view(), outputs_.front().view(), allreduce_options());
  }
}

Allocator Execution::allocator(std::size_t tensor) {
  return [this, tensor](std::span<const std::int64_t> rows) -> void* {
    Buffer& output = outputs_[tensor];
    std::int64_t total = 0;
    for (const std::int64_t row : rows) total += row;
    std::vector<std::int64_t> lengths(own_.tensors[tensor].shape.lengths().begin(),
                                      own_.tensors[tensor].shape.lengths().end());
    if (lengths.empty()) lengths.push_back(1);
    lengths.front() = total;
    output = make_buffer(output.dtype, Shape(lengths));
    return output.bytes.data();
  };
}

void Execution::submit_gathering() {
  if (own_.kind == Kind::alltoall) {
    future_ = alltoall_async(inputs_.front().const_view(), counts(own_, rank_), allocator(0),
                             {.name = own_.name, .process_set = set_});
    return;
  }
  const AllgatherOptions options{.name = own_.name, .process_set = set_};
  if (inputs_.size() == 1) {
    future_ = allgather_async(inputs_.front().const_view(), allocator(0), options);
    return;
  }
  std::vector<Allocator> allocators;
  for (std::size_t i = 0; i < inputs_.size(); ++i) allocators.push_back(allocator(i));
  future_ = grouped_allgather_async(const_views_of(inputs_), allocators, options);
}

void Execution::submit_broadcast() {
  const BroadcastOptions options{.name = own_.name, .process_set = set_};
  if (in_place_) {
    future_ = broadcast_async(inputs_.front().view(), own_.root, options);
  } else {
    future_ =
        broadcast_async(inputs_.front().const_view(), outputs_.front().view(), own_.root, options);
  }
}

void Execution::wait() {
  waited_ = true;
  try {
    if (auto* const plain = std::get_if<0>(&future_)) {
      if (plain->valid()) plain->get();
    } else if (auto* const one = std::get_if<1>(&future_)) {
      counts_.front() = one->get();
    } else {
      counts_ = std::get<2>(future_).get();
    }
  } catch (...) {
    error_ = std::current_exception();
  }
}

std::string Execution::finish() {
  if (!waited_) wait();
  if (!complaint_.empty()) return complaint_;
  if (error_) {
    const std::string wrong = check_failure(error_);
    return wrong.empty() ? check_inputs() : wrong;
  }
  return succeeds(meant_) ? check_success() : "it should have failed";
}

std::string Execution::check_success() const {
  if (own_.kind == Kind::broadcast_string)
    return text_ == input_text(meant_, meant_.root) ? "" : "wrong text";
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    const Buffer expected = output(meant_, i, rank_);
    const Buffer& got = in_place_ ? inputs_[i] : outputs_[i];
    if (got.bytes != expected.bytes) {
      const auto at = std::ranges::mismatch(got.bytes, expected.bytes).in1 - got.bytes.begin();
      return fmt::format("tensor {}: {} bytes, expected {}; they differ from element {}", i,
                         got.bytes.size(), expected.bytes.size(),
                         static_cast<std::size_t>(at) / size_of(got.dtype));
    }
    const bool gathers = own_.kind == Kind::allgather || own_.kind == Kind::alltoall;
    if (gathers && counts_[i] != received(meant_, i, rank_))
      return fmt::format("tensor {}: rows {}", i, counts_[i]);
  }
  return in_place_ ? "" : check_inputs();
}

std::string Execution::check_failure(const std::exception_ptr& error) const {
  try {
    std::rethrow_exception(error);
  } catch (const Mismatch& mismatch) {
    if (succeeds(meant_)) return std::string("it failed: ") + mismatch.what();
    if (mismatch.tensor() != meant_.name) return "the error names " + mismatch.tensor();
    const bool only_mistake = meant_.present == meant_.members;
    if (only_mistake && mismatch.ranks() != meant_.present)
      return fmt::format("the error has ranks {}", mismatch.ranks());
    return "";
  } catch (const std::exception& other) {
    return std::string("it failed otherwise: ") + other.what();
  }
}

std::string Execution::check_inputs() const {
  for (std::size_t i = 0; i < inputs_.size(); ++i)
    if (inputs_[i] != input(own_, i, rank_)) return fmt::format("input {} was changed", i);
  if (own_.kind == Kind::broadcast_string && text_ != input_text(own_, rank_))
    return "the text was changed";
  return "";
}

}  // namespace kolo::internal::differential
