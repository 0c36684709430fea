// SPDX-License-Identifier: Apache-2.0
#include "backend/batch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "base/dtype.hpp"
#include "base/failure.hpp"
#include "base/format.hpp"
#include "fusion/pack.hpp"
#include "kolo/error.hpp"

namespace kolo::internal::backend {
namespace {

// Slices start at multiples of this many elements, so that they are aligned.
constexpr std::int64_t granularity = 16;

int index_of(int rank, const Batch& batch, fmt::format_string<int&> otherwise) {
  const auto found = std::ranges::lower_bound(batch.ranks, rank);
  if (found == batch.ranks.end() || *found != rank)
    throw InvalidArgument(fmt::format(otherwise, rank));
  return static_cast<int>(found - batch.ranks.begin());
}

std::int64_t rows_of(const BatchTensor& tensor, int index, int size) {
  return reducescatter_rows(tensor.rows, index, size);
}

}  // namespace

int index_of(int rank, const Batch& batch) {
  return index_of(rank, batch, "rank {} is not in this batch");
}

int root_index(const Batch& batch) {
  return index_of(batch.kind.root, batch, "the root of a broadcast, rank {}, takes no part in it");
}

std::int64_t total_bytes(const Batch& batch) {
  std::int64_t bytes = 0;
  for (const BatchTensor* tensor : batch.tensors) bytes += tensor->bytes();
  return bytes;
}

std::string& text_of(const Batch& batch) {
  if (batch.tensors.size() != 1 || batch.tensors.front()->text == nullptr)
    throw InvalidArgument("a string broadcast takes one text");
  return *batch.tensors.front()->text;
}

void check(const Batch& batch) {
  if (batch.kind.device.type != DeviceType::cpu)
    throw InvalidArgument(fmt::format("\"{}\" cannot be executed: the memory must be on the CPU",
                                      to_string(batch.kind)));
  // Usually all ranks take part. Among thousands, to look for each one would take longer than to
  // start a small batch.
  if (batch.ranks != batch.set)
    for (const int rank : batch.ranks)
      if (!std::ranges::binary_search(batch.set, rank))
        throw InvalidArgument(fmt::format("rank {} is not of the process set", rank));
  const OperationTraits& traits = traits_of(batch.kind.type);
  for (const BatchTensor* tensor : batch.tensors) {
    if (traits.reduces) reduction::check_arithmetic(batch.kind.op, tensor->dtype);
    if (traits.allocates && tensor->allocate == nullptr)
      throw InvalidArgument("there is nothing to allocate with");
    if (batch.kind.type == OperationType::alltoall && tensor->counts.size() != batch.ranks.size())
      throw InvalidArgument(fmt::format("an alltoall among {} ranks has {} counts",
                                        batch.ranks.size(), tensor->counts.size()));
  }
}

reduction::Arithmetic arithmetic_of(const Batch& batch, DType wire, std::optional<DType> result) {
  return {.op = batch.kind.op,
          .dtype = wire,
          .prescale = batch.kind.prescale,
          .postscale = batch.kind.postscale,
          .divisor = batch.kind.op == ReduceOp::average ? batch.divisor : 1,
          .result = result};
}

DType combined_type(DType wire, DType result) {
  if (!is_half(wire)) return wire;
  return result == DType::f64 ? DType::f64 : DType::f32;
}

/// The prescale applies once, on the inner level; the postscale and the divisor on the outer one.
reduction::Arithmetic inner_arithmetic(const Batch& batch, DType wire, DType combined) {
  reduction::Arithmetic arithmetic = arithmetic_of(batch, wire, combined);
  arithmetic.postscale = 1.0;
  arithmetic.divisor = 1;
  return arithmetic;
}

reduction::Arithmetic outer_arithmetic(const Batch& batch, DType combined) {
  reduction::Arithmetic arithmetic = arithmetic_of(batch, combined);
  arithmetic.prescale = 1.0;
  return arithmetic;
}

std::vector<std::int64_t> sent_rows(const Batch& batch) {
  std::vector<std::int64_t> rows;
  for (const BatchTensor* tensor : batch.tensors) {
    if (batch.kind.type == OperationType::alltoall) {
      rows.insert(rows.end(), tensor->counts.begin(), tensor->counts.end());
    } else {
      rows.push_back(tensor->rows);
    }
  }
  return rows;
}

std::byte* allocate(const Batch& batch, const BatchTensor& tensor,
                    std::span<const std::int64_t> rows) {
  std::vector<std::int64_t> rows_of_set(batch.set.size(), 0);
  std::int64_t elements = 0;
  std::size_t place = 0;  // both lists are ascending
  for (std::size_t i = 0; i < rows.size(); ++i) {
    while (batch.set[place] != batch.ranks[i]) ++place;
    rows_of_set[place] = rows[i];
    elements += rows[i] * tensor.row_elements;
  }
  void* memory = nullptr;
  std::string reason = "the allocator gave none";
  try {
    memory = tensor.allocate(rows_of_set);
  } catch (...) {  // thrown by the program's allocator
    memory = nullptr;
    reason = message_of_current_exception();
  }
  if (memory == nullptr && elements > 0)
    throw BackendError(fmt::format("{}: no memory for {} elements of {}: {}",
                                   to_string(batch.kind.type), elements, to_string(tensor.dtype),
                                   reason));
  return static_cast<std::byte*>(memory);
}

Slice slice_of(std::int64_t elements, int index, int size) {
  std::int64_t each = (elements + size - 1) / size;
  // Short tensors are divided without alignment, so that more ranks take part.
  if (each >= granularity) each = (each + granularity - 1) / granularity * granularity;
  const std::int64_t begin = std::min(index * each, elements);
  return {begin, std::min(each, elements - begin)};
}

std::int64_t Window::elements_of(int index) const {
  const std::int64_t all = rows_of(*tensor, index, size) * tensor->row_elements;
  return std::clamp<std::int64_t>(all - offset, 0, max_elements);
}

const std::byte* Window::input_of(int index) const {
  const std::int64_t rows_before =
      index * (tensor->rows / size) + std::min<std::int64_t>(index, tensor->rows % size);
  return static_cast<const std::byte*>(tensor->input) +
         (rows_before * tensor->row_elements + offset) * signed_size_of(tensor->dtype);
}

std::byte* Window::output() const {
  return static_cast<std::byte*>(tensor->output) + offset * signed_size_of(tensor->dtype);
}

Windows::Windows(const Batch& batch, std::int64_t bytes)
    : tensors_(batch.tensors),
      op_(batch.kind.op),
      compression_(batch.kind.compression),
      size_(static_cast<int>(batch.ranks.size())),
      bytes_(bytes) {}

bool Windows::next(Window& window) {
  // The first rank has the most rows, so it decides whether any are left.
  while (tensor_ < tensors_.size() &&
         offset_ >= rows_of(*tensors_[tensor_], 0, size_) * tensors_[tensor_]->row_elements) {
    ++tensor_;
    offset_ = 0;
  }
  if (tensor_ == tensors_.size()) return false;
  const BatchTensor& tensor = *tensors_[tensor_];
  const DType wire = fusion::wire_type(tensor.dtype, op_, compression_);
  window = {&tensor, wire, size_, offset_,
            std::max<std::int64_t>(bytes_ / signed_size_of(wire) / size_, 1)};
  offset_ += window.max_elements;
  return true;
}

}  // namespace kolo::internal::backend
