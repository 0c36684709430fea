// SPDX-License-Identifier: Apache-2.0
// Lets LibTorch without CUDA compute on GPU tensors in memory of the CUDA double: each kernel is
// the CPU's, on the same memory, when the default stream has come to it. What that stream does not
// wait for may not have happened yet. Autograd runs backward on the thread of the device.
#include <ATen/core/ivalue.h>  // first: see kolo/torch/collectives.hpp

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/NativeFunctions.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/ops/from_blob.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "../fake_gpu_guard.hpp"
#include "backend/gpu/runtime/runtime.hpp"
#include "fake_cuda.hpp"
#include "gpu_on_host.hpp"
#include "torch/gpu_stream.hpp"

namespace kolo::internal {

namespace {

using at::Tensor;

backend::FakeCuda& device() {
  static const auto runtime = backend::gpu::find_runtime();
  return dynamic_cast<backend::FakeCuda&>(*runtime);
}

std::atomic<int> reads{0};  // calls of LibTorch for which the host waits
std::atomic<int> own_waits{0};

/// Waits until the default stream has done its work.
void finish_stream() {
  device().synchronize(backend::gpu::StreamHandle{});
  ++own_waits;
}

/// Whether the host waits for the GPU in this operator of LibTorch: its result lies on the host, or
/// has a size that depends on elements.
bool host_waits(std::string_view name, const c10::IValue& first) {
  constexpr std::array known{
      "aten::_local_scalar_dense", "aten::equal",    "aten::nonzero",  "aten::masked_select",
      "aten::_coalesce",           "aten::_unique2", "aten::bincount", "aten::is_set_to"};
  if (name == "aten::copy_") return first.isTensor() && first.toTensor().is_cpu();
  return std::ranges::find(known, name) != known.end();
}

/// `is_for_kolo`: Kolo's stream writes the memory first.
Tensor make_on_gpu(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType type,
                   c10::Device gpu, bool is_for_kolo = false) {
  std::size_t elements = 1;  // from the first to the last
  for (std::size_t i = 0; i < sizes.size(); ++i)
    elements += static_cast<std::size_t>((sizes[i] - 1) * strides[i]);
  if (std::ranges::find(sizes, 0) != sizes.end()) elements = 0;
  const auto dtype = c10::scalarTypeToTypeMeta(type);
  const std::size_t bytes = elements * dtype.itemsize();
  std::byte* memory = nullptr;
  if (bytes > 0)
    memory = is_for_kolo ? device().make_fresh_memory(bytes) : device().make_memory(bytes);
  finish_stream();  // it may still overwrite memory that was freed
  const auto release = [](void* pointer) {
    device().free_memory(static_cast<std::byte*>(pointer));
  };
  c10::Storage storage(c10::Storage::use_byte_size_t(), bytes,
                       c10::DataPtr(memory, memory, release, gpu));
  Tensor made = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CUDA), dtype);
  made.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return made;
}

/// Memory of storages that Kolo makes itself. Kolo's stream may write it first, after work that the
/// default stream has.
class GpuAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) const override {
    std::byte* const memory = bytes > 0 ? device().make_memory(bytes) : nullptr;
    const c10::impl::VirtualGuardImpl current(c10::DeviceType::CUDA);
    return {memory, memory, &release, current.getDevice()};
  }

 private:
  static void release(void* memory) {
    if (memory != nullptr) device().free_memory(static_cast<std::byte*>(memory));
  }
};

c10::Device gpu_of(c10::optional<c10::Device> device) {
  if (!device) return {c10::DeviceType::CUDA, 0};
  return {c10::DeviceType::CUDA, device->has_index() ? device->index() : c10::DeviceIndex{0}};
}

Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides,
                     c10::optional<at::ScalarType> type, c10::optional<at::Layout> /*layout*/,
                     c10::optional<at::Device> device, c10::optional<bool> /*pinned*/) {
  return make_on_gpu(sizes, strides, c10::dtype_or_default(type), gpu_of(device));
}

Tensor empty(at::IntArrayRef sizes, c10::optional<at::ScalarType> type,
             c10::optional<at::Layout> layout, c10::optional<at::Device> device,
             c10::optional<bool> pinned, c10::optional<at::MemoryFormat> format) {
  // The strides are those that the CPU chooses.
  const Tensor like = at::empty(sizes, at::TensorOptions().dtype(at::kByte), format);
  return empty_strided(sizes, like.strides(), type, layout, device, pinned);
}

/// As a saved tensor is copied to the CPU with all of its storage.
Tensor& set_storage(Tensor& tensor, c10::Storage storage, std::int64_t offset,
                    at::IntArrayRef sizes, at::IntArrayRef strides) {
  at::TensorImpl& implementation = *tensor.unsafeGetTensorImpl();
  implementation.set_storage_keep_dtype(std::move(storage));
  implementation.set_storage_offset(offset);
  if (strides.empty() && !sizes.empty())
    implementation.set_sizes_contiguous(sizes);
  else
    implementation.set_sizes_and_strides(sizes, strides);
  return tensor;
}

/// The same memory as a tensor of the CPU.
Tensor on_host(const Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_cuda()) return tensor;
  return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(),
                       at::TensorOptions().dtype(tensor.dtype()));
}

Tensor on_gpu(const Tensor& tensor, c10::Device gpu) {
  if (!tensor.defined() || tensor.is_cuda()) return tensor;
  Tensor made = make_on_gpu(tensor.sizes(), tensor.strides(), tensor.scalar_type(), gpu);
  on_host(made).copy_(tensor);
  return made;
}

/// Calls of one operator: its arguments on the host, its results on the GPU.
class HostCall {
 public:
  explicit HostCall(const c10::OperatorHandle& function) : function_(function) {}

  void operator()(torch::jit::Stack* stack) {
    finish_stream();
    const auto& schema = function_.schema();
    const std::size_t first = stack->size() - schema.arguments().size();
    const std::vector<c10::IValue> given(stack->begin() + static_cast<std::ptrdiff_t>(first),
                                         stack->end());
    if (!given.empty() && host_waits(schema.name(), given.front())) ++reads;
    for (std::size_t i = 0; i < given.size(); ++i) (*stack)[first + i] = to_host(given[i]);
    // LibTorch drops the arguments before it takes results that are references to them.
    const std::vector<c10::IValue> alive(stack->begin() + static_cast<std::ptrdiff_t>(first),
                                         stack->end());
    function_.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
    const std::size_t results = stack->size() - schema.returns().size();
    for (std::size_t i = 0; i < schema.returns().size(); ++i) {
      c10::IValue& result = (*stack)[results + i];
      const c10::IValue* const same = written(schema, given, schema.returns()[i]);
      result = same != nullptr ? *same : to_gpu(result);
    }
  }

 private:
  c10::IValue to_host(const c10::IValue& value) {
    if (value.isTensor()) return note(value.toTensor());
    if (value.isTensorList()) {
      c10::List<Tensor> list;
      for (const Tensor& tensor : value.toTensorVector()) list.push_back(note(tensor));
      return list;
    }
    if (value.isOptionalTensorList()) {
      c10::List<c10::optional<Tensor>> list;
      for (const c10::optional<Tensor> tensor : value.toOptionalTensorList())
        list.push_back(tensor ? c10::optional<Tensor>(note(*tensor)) : c10::nullopt);
      return list;
    }
    if (value.isDevice() && value.toDevice().is_cuda()) {
      gpu_ = value.toDevice();
      return c10::Device(c10::DeviceType::CPU);
    }
    return value;
  }
  Tensor note(const Tensor& tensor) {
    if (tensor.defined() && tensor.is_cuda()) gpu_ = tensor.device();
    return on_host(tensor);
  }

  c10::IValue to_gpu(const c10::IValue& value) const {
    if (value.isTensor()) return on_gpu(value.toTensor(), gpu_);
    if (!value.isTensorList()) return value;
    c10::List<Tensor> list;
    for (const Tensor& tensor : value.toTensorVector()) list.push_back(on_gpu(tensor, gpu_));
    return list;
  }

  /// The argument that this result is, if the operator writes it.
  static const c10::IValue* written(const c10::FunctionSchema& schema,
                                    const std::vector<c10::IValue>& given,
                                    const c10::Argument& result) {
    if (result.alias_info() == nullptr || !result.alias_info()->isWrite()) return nullptr;
    for (std::size_t i = 0; i < given.size(); ++i) {
      const auto* const alias = schema.arguments()[i].alias_info();
      if (alias != nullptr && alias->isWrite() &&
          alias->beforeSets() == result.alias_info()->beforeSets())
        return &given[i];
    }
    return nullptr;
  }

  const c10::OperatorHandle& function_;
  c10::Device gpu_{c10::DeviceType::CUDA, 0};
};

void call_on_host(const c10::OperatorHandle& function, torch::jit::Stack* stack) {
  HostCall call(function);
  call(stack);
}

/// LibTorch has a dropout of its own for GPUs. The CPU's version of it draws the mask in the order
/// of memory, where the dropout for CPU tensors draws it in the order of the indices: for images
/// whose channels are innermost in memory, these differ.
std::tuple<Tensor, Tensor> native_dropout(const Tensor& input, double probability,
                                          c10::optional<bool> train) {
  finish_stream();
  const Tensor host = on_host(input);
  const Tensor mask = at::empty(host.sizes(), host.options().dtype(at::kBool));
  if (train && !*train)
    return {on_gpu(host, input.device()), on_gpu(mask.fill_(1), input.device())};
  mask.bernoulli_(1.0 - probability);
  const Tensor kept = host.mul(mask).mul_(1.0 / (1.0 - probability));
  return {on_gpu(kept, input.device()), on_gpu(mask, input.device())};
}

/// The functions that LibTorch requires of CUDA, except streams.
class CUDAHooks : public at::CUDAHooksInterface {  // the name that LibTorch looks for
 public:
  explicit CUDAHooks(at::CUDAHooksArgs /*arguments*/) {}

  void initCUDA() const override {}
  bool hasCUDA() const override { return true; }
  bool hasPrimaryContext(int64_t /*device*/) const override { return true; }
  int getNumGPUs() const override { return device().device_count(); }
  int64_t current_device() const override { return 0; }
  bool isPinnedPtr(void* /*memory*/) const override { return false; }
  const at::Generator& getDefaultCUDAGenerator(at::DeviceIndex /*device*/) const override {
    return at::detail::getDefaultCPUGenerator();
  }
};

[[maybe_unused]] const bool has_stream = [] {
  kolo::detail::set_framework_stream([](int) -> CUstream_st* { return nullptr; });
  return true;
}();

[[maybe_unused]] const bool has_allocator = [] {
  static GpuAllocator allocator;
  c10::SetAllocator(c10::DeviceType::CUDA, &allocator);
  return true;
}();

using at::CUDAHooksRegistry;
using at::RegistererCUDAHooksRegistry;
REGISTER_CUDA_HOOKS(CUDAHooks);
C10_REGISTER_GUARD_IMPL(CUDA, FakeGpuGuard);

TORCH_LIBRARY_IMPL(_, CUDA, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&call_on_host>());
}

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("empty.memory_format", empty);
  library.impl("empty_strided", empty_strided);
  library.impl("as_strided", at::native::as_strided_tensorimpl);
  library.impl("view", at::native::view);
  library.impl("set_.source_Storage_storage_offset", set_storage);
  library.impl("_reshape_alias", at::native::_reshape_alias);
  // Else LibTorch would choose an algorithm for GPUs, whose results have other bits.
  library.impl("native_dropout", native_dropout);
  for (const char* name : {"copy_", "convolution", "convolution_backward"})
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&call_on_host>());
}

}  // namespace

int waits_for_gpu() {
  // The double counts a wait when it begins and when it ends.
  auto& faults = device().faults;
  const int all = faults.made("cudaStreamSynchronize") + faults.made("cudaEventSynchronize");
  return reads + all / 2 - own_waits;
}

::torch::Tensor empty_between_streams(const std::vector<std::int64_t>& sizes,
                                      const ::torch::TensorOptions& options,
                                      CUstream_st* /*user*/) {
  const Tensor like = at::empty(sizes, at::TensorOptions().dtype(at::kByte));
  return make_on_gpu(sizes, like.strides(), c10::typeMetaToScalarType(options.dtype()),
                     options.device(), /*is_for_kolo=*/true);
}

}  // namespace kolo::internal
