// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/ivalue.h>  // first: see kolo/torch/optimizer.hpp

#include "torch/freed_parameter.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <c10/core/Allocator.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>

namespace kolo::internal {
namespace {

// The deleter of this memory, which tells it from any other.
void release(void* memory) { delete static_cast<c10::DataPtr*>(memory); }

}  // namespace

// On CPUs its bits are all ones, so that a write is seen.
::torch::Tensor make_freed_element(const at::TensorOptions& options) {
  const at::TensorOptions plain = options.requires_grad(false);
  ::torch::Tensor element;
  if (options.device() == at::kCPU) {
    element = at::empty({1}, plain);
    std::memset(element.data_ptr(), 0xFF, element.nbytes());
  } else {
    element = at::full({1}, std::numeric_limits<double>::quiet_NaN(), plain);
  }
  void* const address = element.data_ptr();
  auto memory = std::make_unique<c10::DataPtr>();
  c10::StorageImpl& storage = *element.storage().unsafeGetStorageImpl();
  *memory = storage.set_data_ptr({address, memory.get(), &release, element.device()});
  (void)memory.release();  // the storage owns it now
  return element;
}

bool is_freed_parameter(const ::torch::Tensor& tensor) {
  return tensor.has_storage() && tensor.storage().data_ptr().get_deleter() == &release;
}

bool is_untouched(const ::torch::Tensor& freed_element) {
  if (!freed_element.is_cpu()) return true;
  const auto* const bytes = static_cast<const unsigned char*>(freed_element.data_ptr());
  return std::all_of(bytes, bytes + freed_element.nbytes(),
                     [](unsigned char byte) { return byte == 0xFF; });
}

}  // namespace kolo::internal
