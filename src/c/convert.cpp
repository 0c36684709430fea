// SPDX-License-Identifier: Apache-2.0
#include "c/convert.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <span>

#include "base/descriptor.hpp"
#include "base/dtype.hpp"
#include "c/boundary.hpp"
#include "c/handles.hpp"
#include "kolo/error.hpp"

namespace kolo::internal::c {
namespace {

const kolo_reduce_options& default_reduction() {
  static const kolo_reduce_options options = KOLO_REDUCE_OPTIONS;
  return options;
}

template <typename Options>
Options reduction(const kolo_reduce_options& given, const char* function) {
  Options options{};
  options.name = optional_text(given.name, function, "name");
  options.op = enumerator(given.op, ReduceOp::adasum, function, "operator");
  options.prescale = given.prescale;
  options.postscale = given.postscale;
  options.compression = enumerator(given.compression, Compression::bf16, function, "compression");
  options.process_set = set_of(given.process_set, function);
  return options;
}

template <typename Options>
Options allreduction(const kolo_reduce_options& given, const char* function) {
  auto options = reduction<Options>(given, function);
  options.average_over =
      enumerator(given.average_over, AverageOver::present, function, "average_over");
  return options;
}

/// The engine checks the memory of collectives; other objects copy from the memory themselves.
void require_memory(const NamedTensor& given, const char* function) {
  const auto& [name, tensor] = given;
  const auto lengths = tensor.shape().lengths();
  const bool is_negative = std::ranges::any_of(lengths, [](auto length) { return length < 0; });
  if (is_negative || !extent_of(lengths))
    throw InvalidArgument(
        fmt::format("{}: '{}' has a negative length, or too many elements", function, name), name);
  if (tensor.data() == nullptr && tensor.elements() > 0)
    throw InvalidArgument(fmt::format("{}: the memory of '{}' is null", function, name), name);
}

/// The size of the rows of all ranks.
std::size_t bytes_of_rows(std::span<const std::int64_t> counts, std::int64_t row_bytes) {
  std::int64_t total = 0;
  for (const std::int64_t count : counts) {
    std::int64_t bytes = 0;
    if (__builtin_mul_overflow(count, row_bytes, &bytes) ||
        __builtin_add_overflow(total, bytes, &total))
      throw Error("the rows of all ranks together have more bytes than there are addresses");
  }
  return static_cast<std::size_t>(total);
}

}  // namespace

void refuse_value(const char* function, const char* what, int value) {
  throw InvalidArgument(
      fmt::format("{}: there is no {} with the number {}", function, what, value));
}

void refuse_handle(const char* function, const char* kind) {
  throw InvalidArgument(fmt::format("{}: this is no {}, or one that was freed", function, kind));
}

void refuse_busy(const char* function, const char* kind) {
  throw InvalidArgument(fmt::format(
      "{}: this {} is in use by another call: use it from one thread at a time", function, kind));
}

TensorView tensor_of(const kolo_tensor* tensor, const char* function, const char* argument) {
  const kolo_tensor& given = not_null(tensor, function, argument);
  constexpr int max_dimensions = 64;  // a larger number was not set
  if (given.dimensions < 0 || given.dimensions > max_dimensions)
    throw InvalidArgument(fmt::format("{}: `{}` has {} dimensions, but a tensor has 0 to {}",
                                      function, argument, given.dimensions, max_dimensions));
  const auto dimensions = static_cast<std::size_t>(given.dimensions);
  require_array(given.shape, dimensions, function, "shape");
  return {given.data, Shape(std::span<const std::int64_t>(given.shape, dimensions)),
          enumerator(given.dtype, DType::boolean, function, "dtype"),
          Device{enumerator(given.device.type, DeviceType::cuda, function, "device"),
                 given.device.index}};
}

std::vector<TensorView> tensors_of(const kolo_tensor* tensors, std::size_t count,
                                   const char* function, const char* argument) {
  require_array(tensors, count, function, argument);
  std::vector<TensorView> views;
  views.reserve(count);
  for (std::size_t i = 0; i < count; ++i)
    views.push_back(tensor_of(tensors + i, function, argument));
  return views;
}

std::vector<NamedTensor> named_tensors_of(const kolo_named_tensor* tensors, std::size_t count,
                                          const char* function, const char* argument) {
  require_array(tensors, count, function, argument);
  std::vector<NamedTensor> named;
  named.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    named.push_back({text_of(tensors[i].name, function, "name"),
                     tensor_of(&tensors[i].tensor, function, argument)});
    require_memory(named.back(), function);
  }
  return named;
}

AllreduceOptions allreduce_options(const kolo_reduce_options* given, const char* function) {
  return allreduction<AllreduceOptions>(options_of(given, default_reduction(), function), function);
}

GroupedAllreduceOptions grouped_options(const kolo_reduce_options* given, const char* function) {
  const kolo_reduce_options all = options_of(given, default_reduction(), function);
  auto options = allreduction<GroupedAllreduceOptions>(all, function);
  options.fuse_exactly = all.fuse_exactly != 0;
  return options;
}

ReducescatterOptions reducescatter_options(const kolo_reduce_options* given, const char* function) {
  return reduction<ReducescatterOptions>(options_of(given, default_reduction(), function),
                                         function);
}

template <typename Options>
Options collective_options(const kolo_collective_options* given, const char* function) {
  static constexpr kolo_collective_options defaults = KOLO_COLLECTIVE_OPTIONS;
  const kolo_collective_options all = options_of(given, defaults, function);
  return {optional_text(all.name, function, "name"), set_of(all.process_set, function)};
}
template AllgatherOptions collective_options(const kolo_collective_options*, const char*);
template BroadcastOptions collective_options(const kolo_collective_options*, const char*);
template AlltoallOptions collective_options(const kolo_collective_options*, const char*);
template BarrierOptions collective_options(const kolo_collective_options*, const char*);

Allocator allocator_of(kolo_allocator allocate, void* user, const TensorView& tensor,
                       std::int64_t* rows) {
  if (allocate == nullptr) return nullptr;  // refused by the collective
  if (allocate == &kolo_allocate && user == nullptr)
    throw InvalidArgument("`user` is null: kolo_allocate sets the pointer to which it points");
  // Runs only once the collective has checked the shape, so that the size of a row fits.
  return [=](std::span<const std::int64_t> counts) {
    std::int64_t row_bytes = signed_size_of(tensor.dtype());
    const auto lengths = tensor.shape().lengths();
    for (std::size_t i = 1; i < lengths.size(); ++i) row_bytes *= lengths[i];
    if (rows != nullptr) std::ranges::copy(counts, rows);
    return allocate(counts.data(), counts.size(), bytes_of_rows(counts, row_bytes), user);
  };
}

extern "C" KOLO_C_EXPORT void* kolo_allocate(const int64_t* /*rows*/, size_t /*members*/,
                                             size_t bytes, void* user) {
  if (user == nullptr) return nullptr;
  void* const memory = std::malloc(std::max<std::size_t>(bytes, 1));
  *static_cast<void**>(user) = memory;
  return memory;
}

}  // namespace kolo::internal::c
