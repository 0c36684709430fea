// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/ivalue.h>  // first: see kolo/torch/optimizer.hpp

#include "torch/sharded/sharded_unit.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Allocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/util/hash.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string_view>
#include <type_traits>
#include <utility>

#include "kolo/error.hpp"
#include "torch/freed_parameter.hpp"
#include "torch/sharded/unit_node.hpp"
#include "torch/tensor_view.hpp"

namespace kolo::internal {

namespace autograd = ::torch::autograd;
using ::torch::Tensor;

// ---- Parameters

ShardedUnit::ShardedUnit(std::vector<Parameter> parameters, ShardPosition position)
    : position_(position) {
  for (Parameter& parameter : parameters) add(std::move(parameter));
}

ShardedUnit::~ShardedUnit() = default;

void ShardedUnit::add(Parameter parameter) {
  entries_.emplace_back(std::move(parameter.name), parameter.tensor, position_);
}

void ShardedUnit::connect(std::weak_ptr<UnitListener> listener, std::size_t index,
                          std::optional<::torch::Dtype> compute, bool may_share) {
  const at::NoGradGuard no_grad;
  may_share_ = may_share;
  listener_ = std::move(listener);
  index_ = index;
  trained_ = 0;
  bytes_ = 0;
  node_ = make_unit_node(weak_from_this());
  const c10::Device device =
      entries_.empty() ? c10::Device(c10::kCPU) : entries_.front().whole.device();
  const c10::DeviceGuard guard(device);
  storage_ = c10::Storage(c10::Storage::use_byte_size_t(), 0, c10::GetAllocator(device.type()),
                          /*resizable=*/false);
  for (ShardedParameter& entry : entries_) {
    const Tensor& whole = entry.whole;
    if (whole.device() != device)
      throw InvalidArgument("FullySharded: '" + entry.name + "' is on " + whole.device().str() +
                                ", but '" + entries_.front().name + "' is on " + device.str(),
                            entry.name);
    entry.require_own();
    entry.freed =
        make_freed_element(whole.options().dtype(compute.value_or(entry.shard.scalar_type())));
    entry.trains = whole.requires_grad();  // ConstructSharded has divided it long before
    entry.shard.set_requires_grad(entry.trains);
    // A tensor of another dtype takes the place of the old one behind the module's tensor.
    whole.set_data(entry.freed.detach());
    entry.hide();
    if (entry.trains) {
      const auto number = node_->add_input_metadata(whole);
      autograd::impl::set_gradient_edge(whole, autograd::Edge(node_, number));
      ++trained_;
    }
    constexpr std::size_t alignment = 64;
    entry.offset = static_cast<std::int64_t>(bytes_);
    const std::size_t size = static_cast<std::size_t>(entry.elements * whole.element_size());
    bytes_ += (size + alignment - 1) / alignment * alignment;
  }
  place_shards();
}

// A shard that is whole moves to its place in memory that the whole parameters can share, unless
// they have another dtype.
void ShardedUnit::place_shards() {
  home_.reset();
  if (position_.ranks > 1 || !may_share_ || bytes_ == 0) return;
  for (const ShardedParameter& entry : entries_)
    if (entry.whole.scalar_type() != entry.shard.scalar_type()) return;
  home_ = at::empty({static_cast<std::int64_t>(bytes_)},
                    entries_.front().shard.options().requires_grad(false).dtype(at::kByte));
  for (ShardedParameter& entry : entries_) {
    // A storage of its own, so that a shard that is saved does not bring the others.
    const Tensor place =
        at::for_blob(static_cast<char*>(home_.data_ptr()) + entry.offset, {entry.elements})
            .deleter([home = home_](void*) {})
            .options(entry.shard.options().requires_grad(false))
            .target_device(home_.device())
            .make_tensor();
    place.copy_(entry.shard);
    entry.shard.set_data(place);
  }
}

// A program may have given a shard other memory.
bool ShardedUnit::is_undivided() const {
  if (!home_.defined()) return false;
  const auto* const home = static_cast<const char*>(home_.data_ptr());
  return std::ranges::all_of(entries_, [&](const ShardedParameter& entry) {
    return entry.shard.data_ptr() == home + entry.offset || entry.elements == 0;
  });
}

// The shards keep their identity, so that optimizers of them stay valid.
void ShardedUnit::divide_anew(ShardPosition position) {
  const at::NoGradGuard no_grad;
  position_ = position;
  for (ShardedParameter& entry : entries_) {
    entry.shard.mutable_grad().reset();
    entry.gradient.reset();
    entry.is_used = false;
    entry.shard.set_data(at::full({position.size(entry.elements)},
                                  std::numeric_limits<double>::quiet_NaN(),
                                  entry.shard.options().requires_grad(false)));
  }
  place_shards();
}

Tensor ShardedUnit::shaped(std::size_t i, const Tensor& elements) const {
  return elements.as_strided(entries_[i].sizes, entries_[i].strides);
}

bool ShardedUnit::is_row_major(std::size_t i) const {
  std::int64_t expected = 1;
  for (std::size_t d = entries_[i].sizes.size(); d-- > 0; expected *= entries_[i].sizes[d])
    if (entries_[i].sizes[d] != 1 && entries_[i].strides[d] != expected) return false;
  return true;
}

ParameterShard ShardedUnit::description(std::size_t i) const {
  const ShardedParameter& entry = entries_[i];
  return {.whole = at::empty_strided(
              entry.sizes, entry.strides,
              entry.shard.options().requires_grad(false).device(c10::DeviceType::Meta)),
          .shard = entry.shard,
          .elements = entry.elements,
          .begin = position_.begin(entry.elements),
          .size = position_.size(entry.elements),
          .lengths = entry.sizes,
          .strides = entry.strides};
}

std::string ShardedUnit::describe(std::size_t i) const {
  return internal::describe(description(i).whole) + (entries_[i].trains ? "" : ", frozen");
}

// ---- Memory

bool ShardedUnit::is_freed() const {
  return std::ranges::any_of(
      entries_, [&](const ShardedParameter& entry) { return !has_memory_of(entry.whole); });
}

bool ShardedUnit::has_memory_of(const Tensor& tensor) const {
  return tensor.has_storage() &&
         tensor.storage().unsafeGetStorageImpl() == storage_.unsafeGetStorageImpl();
}

// LibTorch's allocators of GPU memory allocate on the current GPU.
void ShardedUnit::allocate() {
  const c10::DeviceGuard guard(storage_.device());
  for (const ShardedParameter& entry : entries_) entry.require_own();
  c10::StorageImpl& storage = *storage_.unsafeGetStorageImpl();
  storage.set_data_ptr_noswap(memory());
  storage.set_nbytes(bytes_);
  for (ShardedParameter& entry : entries_) entry.show(storage_);
}

// The memory of shards lives as long as a tensor that shares it.
c10::DataPtr ShardedUnit::memory() const {
  if (!is_undivided()) return c10::GetAllocator(storage_.device_type())->allocate(bytes_);
  return {home_.data_ptr(), new Tensor(home_),
          [](void* home) { delete static_cast<Tensor*>(home); }, home_.device()};
}

void ShardedUnit::free() noexcept {
  for (ShardedParameter& entry : entries_) entry.hide();
  c10::StorageImpl& storage = *storage_.unsafeGetStorageImpl();
  storage.set_data_ptr_noswap(c10::DataPtr(nullptr, storage.device()));
  storage.set_nbytes(0);
}

std::vector<ConstTensorView> ShardedUnit::shards() {
  const at::NoGradGuard no_grad;
  std::vector<ConstTensorView> views;
  wire_.clear();
  for (const ShardedParameter& entry : entries_) {
    wire_.push_back(entry.shard.detach().to(entry.whole.scalar_type()));
    views.emplace_back(view_of(wire_.back()));
  }
  return views;
}

std::vector<void*> ShardedUnit::places() {
  std::vector<void*> places;
  for (const ShardedParameter& entry : entries_) places.push_back(entry.whole.data_ptr());
  return places;
}

std::vector<std::int64_t> ShardedUnit::elements() const {
  std::vector<std::int64_t> elements;
  for (const ShardedParameter& entry : entries_) elements.push_back(entry.elements);
  return elements;
}

std::int64_t ShardedUnit::version() const {
  std::int64_t sum = 0;
  for (const ShardedParameter& entry : entries_) sum += entry.shard._version();
  return sum;
}

// SGD of LibTorch's writes to shards by data(), which changes no version. So the stamp also has
// some elements of each, if they can be read without a wait.
std::size_t ShardedUnit::stamp() const {
  constexpr std::int64_t samples = 8;
  std::size_t stamp = c10::get_hash(version());
  for (const ShardedParameter& entry : entries_) {
    if (!entry.shard.is_cpu()) continue;
    const auto* const bytes = static_cast<const char*>(entry.shard.data_ptr());
    const auto size = static_cast<std::size_t>(entry.shard.element_size());
    const std::int64_t stride = std::max<std::int64_t>(entry.shard.numel() / samples, 1);
    for (std::int64_t i = 0; i < entry.shard.numel(); i += stride)
      stamp = c10::hash_combine(
          stamp, std::hash<std::string_view>()({bytes + static_cast<std::size_t>(i) * size, size}));
  }
  return stamp;
}

// ---- Gradients

/// The whole gradients of one reduction, in the dtype of the shards.
class ShardedUnit::Gradients final : public UnitGradients {
 public:
  explicit Gradients(ShardedUnit& unit) : unit_(unit.shared_from_this()) {
    const at::NoGradGuard no_grad;
    for (ShardedParameter& entry : unit.entries_) {
      if (!entry.trains) continue;
      whole_.push_back(entry.take_gradient());
      shards_.push_back(unit.position_.ranks == 1
                            ? whole_.back()
                            : at::empty({entry.shard.numel()}, whole_.back().options()));
    }
  }

  [[nodiscard]] std::vector<ConstTensorView> whole() const override {
    std::vector<ConstTensorView> views;
    for (const Tensor& tensor : whole_) views.emplace_back(view_of(tensor));
    return views;
  }
  [[nodiscard]] std::vector<TensorView> shards() const override {
    std::vector<TensorView> views;
    for (const Tensor& tensor : shards_) views.push_back(view_of(tensor));
    return views;
  }

  [[nodiscard]] bool is_undivided() const override { return unit_->position_.ranks == 1; }

  void accumulate() override {
    const at::NoGradGuard no_grad;
    whole_.clear();
    auto next = shards_.begin();
    for (ShardedParameter& entry : unit_->entries_) {
      if (!entry.trains) continue;
      Tensor& sum = entry.shard.mutable_grad();
      if (sum.defined()) {
        sum.add_(*next);
      } else {
        sum = *next;
        entry.has_new_gradient = true;
      }
      ++next;
    }
    shards_.clear();
  }

 private:
  std::shared_ptr<ShardedUnit> unit_;
  std::vector<Tensor> whole_{};
  std::vector<Tensor> shards_{};
};

void ShardedUnit::add_gradients(std::vector<Tensor> gradients) {
  const at::NoGradGuard no_grad;
  gradients.resize(trained_);
  auto next = gradients.begin();
  for (ShardedParameter& entry : entries_) {
    if (!entry.trains) continue;
    if (Tensor gradient = std::move(*next++); gradient.defined())
      entry.add_gradient(std::move(gradient));
  }
}

void ShardedUnit::zero_gradients(bool set_to_none) {
  const at::NoGradGuard no_grad;
  for (ShardedParameter& entry : entries_) {
    entry.gradient.reset();
    entry.is_used = false;
    Tensor& gradient = entry.shard.mutable_grad();
    if (set_to_none) {
      gradient.reset();
    } else if (gradient.defined()) {
      gradient.zero_();
    }
  }
}

std::unique_ptr<UnitGradients> ShardedUnit::take_gradients() {
  return std::make_unique<Gradients>(*this);
}

std::vector<std::int32_t> ShardedUnit::take_used() {
  std::vector<std::int32_t> used;
  for (ShardedParameter& entry : entries_)
    if (entry.trains) used.push_back(std::exchange(entry.is_used, false) ? 1 : 0);
  return used;
}

void ShardedUnit::end_pass(const std::vector<std::int32_t>& used) {
  auto next = used.begin();
  for (ShardedParameter& entry : entries_) {
    if (!entry.trains) continue;
    const bool is_used = *next++ != 0;
    if (std::exchange(entry.has_new_gradient, false) && !is_used)
      entry.shard.mutable_grad().reset();
  }
}

void ShardedUnit::fail_pass() noexcept {
  for (ShardedParameter& entry : entries_) {
    entry.gradient.reset();
    entry.is_used = false;
    if (std::exchange(entry.has_new_gradient, false)) entry.shard.mutable_grad().reset();
  }
}

}  // namespace kolo::internal
