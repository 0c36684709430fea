// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/ivalue.h>  // first: see kolo/torch/collectives.hpp

#include "torch/tensor_view.hpp"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/view_as_complex.h>
#include <ATen/ops/view_as_real.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <utility>

#include "base/format.hpp"
#include "kolo/error.hpp"
#include "torch/freed_parameter.hpp"
#include "torch/gpu_stream.hpp"
#include "training/parameter_hashes.hpp"

namespace kolo::internal {
namespace {

/// The dtypes that both Kolo and LibTorch have.
constexpr auto dtypes = std::to_array<std::pair<DType, at::ScalarType>>({
    {DType::u8, at::kByte},
    {DType::i8, at::kChar},
    {DType::i16, at::kShort},
    {DType::i32, at::kInt},
    {DType::i64, at::kLong},
    {DType::f16, at::kHalf},
    {DType::bf16, at::kBFloat16},
    {DType::f32, at::kFloat},
    {DType::f64, at::kDouble},
    {DType::boolean, at::kBool},
});

std::optional<DType> kolo_dtype(at::ScalarType type) {
  const auto* const found = std::ranges::find(dtypes, type, &decltype(dtypes)::value_type::second);
  return found == dtypes.end() ? std::nullopt : std::optional(found->first);
}

Shape shape_of(at::IntArrayRef lengths) {
  return Shape(std::vector<std::int64_t>(lengths.begin(), lengths.end()));
}

Shape shape_in_memory(const ::torch::Tensor& tensor) {
  if (tensor.is_contiguous()) return shape_of(tensor.sizes());
  std::vector<std::int64_t> dimensions(static_cast<std::size_t>(tensor.dim()));
  std::iota(dimensions.begin(), dimensions.end(), 0);
  std::stable_sort(dimensions.begin(), dimensions.end(), [&](std::int64_t a, std::int64_t b) {
    return tensor.stride(a) > tensor.stride(b);
  });
  std::vector<std::int64_t> lengths{1};
  for (const std::int64_t dimension : dimensions) lengths.push_back(tensor.size(dimension));
  return Shape(std::move(lengths));
}

}  // namespace

std::optional<at::ScalarType> torch_dtype(DType dtype) {
  const auto* const found = std::ranges::find(dtypes, dtype, &decltype(dtypes)::value_type::first);
  return found == dtypes.end() ? std::nullopt : std::optional(found->second);
}

std::string describe(const ::torch::Tensor& tensor) {
  const auto dtype = kolo_dtype(tensor.scalar_type());
  std::string text = dtype ? std::string(to_string(*dtype)) : c10::toString(tensor.scalar_type());
  text += ' ' + to_string(shape_of(tensor.sizes()));
  if (tensor.layout() != at::kStrided) return text + " sparse";
  if (!tensor.is_contiguous()) text += " strides " + to_string(shape_of(tensor.strides()));
  return text;
}

::torch::Tensor real_view(const ::torch::Tensor& tensor) {
  return tensor.is_complex() ? at::view_as_real(tensor.resolve_conj()) : tensor.resolve_neg();
}

void put_back_real(const ::torch::Tensor& real, const ::torch::Tensor& tensor) {
  if (tensor.is_conj() || tensor.is_neg())
    tensor.copy_(tensor.is_complex() ? at::view_as_complex(real) : real);
}

void require_supported(const ::torch::Tensor& tensor, const std::string& name) {
  const auto refuse = [&](const std::string& reason) {
    throw InvalidArgument("'" + name + "': " + reason, name);
  };
  if (!tensor.defined()) refuse("the tensor is undefined");
  if (tensor.layout() != at::kStrided) refuse("sparse tensors are not supported");
  if (!kolo_dtype(tensor.scalar_type())) {
    refuse(std::string("elements of type ") + c10::toString(tensor.scalar_type()) +
           " are not supported" +
           (tensor.is_complex() ? "; torch::view_as_real() views them as real numbers" : ""));
  }
  if (!tensor.is_cpu() && !tensor.is_cuda()) {
    refuse("tensors on " + tensor.device().str() + " are not supported");
  }
  if (is_freed_parameter(tensor))
    refuse(
        "this parameter of a FullySharded model is freed here. Use the shards, parameters() of the "
        "FullySharded, or hold gather() of it");
}

// No two elements overlap if each stride exceeds the largest offset that smaller strides reach.
bool elements_overlap(const ::torch::Tensor& tensor) {
  if (tensor.layout() != at::kStrided || tensor.numel() == 0 ||
      tensor.is_non_overlapping_and_dense())
    return false;
  std::vector<std::pair<std::int64_t, std::int64_t>> dimensions;  // strides and lengths
  for (std::int64_t i = 0; i < tensor.dim(); ++i)
    if (tensor.size(i) > 1) dimensions.emplace_back(tensor.stride(i), tensor.size(i));
  std::ranges::sort(dimensions);
  std::int64_t reached = 0;
  for (const auto& [stride, length] : dimensions) {
    if (stride <= reached) return true;
    reached += stride * (length - 1);
  }
  return false;
}

void for_each_run(const ::torch::Tensor& tensor,
                  const std::function<void(const std::byte*, std::size_t)>& use) {
  if (tensor.numel() == 0) return;
  const auto* const memory = static_cast<const std::byte*>(tensor.data_ptr());
  const auto bytes_of = [&](std::int64_t elements) {
    return static_cast<std::size_t>(elements) * tensor.itemsize();
  };
  std::vector<std::pair<std::int64_t, std::int64_t>> dimensions;  // strides and lengths
  for (std::int64_t i = 0; i < tensor.dim(); ++i)
    if (tensor.size(i) > 1) dimensions.emplace_back(tensor.stride(i), tensor.size(i));
  std::ranges::sort(dimensions);
  std::int64_t run = 1;
  auto outer = dimensions.begin();
  for (; outer != dimensions.end() && outer->first == run; ++outer) run *= outer->second;
  std::vector<std::int64_t> offsets{0};
  for (; outer != dimensions.end(); ++outer) {
    const std::size_t count = offsets.size();
    for (std::int64_t i = 1; i < outer->second; ++i)
      for (std::size_t j = 0; j < count; ++j) offsets.push_back(offsets[j] + i * outer->first);
  }
  for (const std::int64_t offset : offsets) use(memory + bytes_of(offset), bytes_of(run));
}

void require_writable(const ::torch::Tensor& tensor, const std::string& name) {
  require_supported(tensor, name);
  if (tensor.is_neg())
    throw InvalidArgument("'" + name +
                              "': its memory has the negated elements, as that of "
                              "torch::imag(z.conj()): use its resolve_neg()",
                          name);
  if (!elements_overlap(tensor)) return;
  throw InvalidArgument("'" + name + "': " + describe(tensor) +
                            " has elements that share memory, as expand() makes them, so that no "
                            "result can be written into it: use its clone()",
                        name);
}

::torch::Tensor source_of(const ::torch::Tensor& tensor, const std::string& name) {
  require_supported(tensor, name);
  return tensor.detach().resolve_neg().contiguous();
}

TensorView view_of(const ::torch::Tensor& tensor) {
  Device device;
  if (tensor.is_cuda()) device = {DeviceType::cuda, tensor.device().index()};
  return {tensor.data_ptr(), shape_in_memory(tensor), kolo_dtype(tensor.scalar_type()).value(),
          device};
}

Allocator rows_like(const ::torch::Tensor& tensor, ::torch::Tensor& result) {
  std::vector<std::int64_t> sizes = tensor.sizes().vec();
  if (sizes.empty()) sizes.push_back(1);
  CUstream_st* const user =
      tensor.is_cuda() ? detail::stream_in_use(tensor.device().index()).handle : nullptr;
  return [sizes, tensor, user, &result](std::span<const std::int64_t> rows) mutable {
    sizes.front() = std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
    result = tensor.is_cuda() ? empty_between_streams(sizes, tensor.options(), user)
                              : at::empty(sizes, tensor.options());
    return result.data_ptr();
  };
}

GatherGroup gather_group(const std::vector<::torch::Tensor>& tensors,
                         std::vector<::torch::Tensor>& results, const std::string& name) {
  GatherGroup group;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const ::torch::Tensor source = source_of(tensors[i], name);
    group.sources.emplace_back(view_of(source));
    group.allocators.push_back(rows_like(source, results[i]));
  }
  return group;
}

void mark_changed(const ::torch::Tensor& tensor) {
  if (!tensor.is_inference()) ::torch::autograd::impl::bump_version(tensor);
}

bool is_readable(const ::torch::Tensor& tensor) {
  if (!tensor.is_cpu()) return false;
  if (tensor.layout() == at::kSparse) return true;
  if (tensor.layout() != at::kStrided || !tensor.has_storage()) return false;
  // A program may shrink the storage of parameters that it does not need for a while.
  return tensor.storage().nbytes() >=
         at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.itemsize(),
                                          static_cast<std::size_t>(tensor.storage_offset()));
}

namespace {

/// The numbers that turn the integers of a quantized tensor into its values.
std::uint64_t hash_of_scale(const ::torch::Tensor& tensor) {
  if (tensor.qscheme() != at::kPerTensorAffine)
    return hash_of(tensor.q_per_channel_scales()) ^ hash_of(tensor.q_per_channel_zero_points());
  const std::array<double, 2> numbers{tensor.q_scale(), static_cast<double>(tensor.q_zero_point())};
  return hash_of(std::as_bytes(std::span(numbers)));
}

}  // namespace

std::uint64_t hash_of(const ::torch::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  if (tensor.layout() == at::kSparse) {
    const ::torch::Tensor coalesced = tensor.coalesce();
    return hash_of(coalesced.indices()) ^ hash_of(coalesced.values());
  }
  if (tensor.is_quantized()) return hash_of(tensor.int_repr()) ^ hash_of_scale(tensor);
  // A tensor may be a view that negates or conjugates the elements of its memory.
  const ::torch::Tensor on_host = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous();
  return hash_of({static_cast<const std::byte*>(on_host.data_ptr()), on_host.nbytes()});
}

bool same_layout(const ::torch::Tensor& a, const ::torch::Tensor& b) {
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) return false;
  if (a.is_contiguous() && b.is_contiguous()) return true;
  return a.is_non_overlapping_and_dense() && b.is_non_overlapping_and_dense() &&
         a.strides() == b.strides();
}

}  // namespace kolo::internal
