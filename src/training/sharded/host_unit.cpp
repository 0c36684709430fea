// SPDX-License-Identifier: Apache-2.0
#include "training/sharded/host_unit.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <new>
#include <string_view>
#include <utility>

#include "base/dtype.hpp"
#include "base/elements.hpp"
#include "base/format.hpp"

namespace kolo::internal {
namespace {

constexpr std::size_t tensor_alignment = 64;

std::size_t bytes_of(const ConstTensorView& tensor) {
  return static_cast<std::size_t>(tensor.elements()) * size_of(tensor.dtype());
}

const std::byte* data_of(const ConstTensorView& tensor) {
  return static_cast<const std::byte*>(tensor.data());
}

void add_to(const TensorView& sum, const TensorView& summand) {
  auto* const to = static_cast<std::byte*>(sum.data());
  const std::byte* const from = data_of(summand);
  visit_real(sum.dtype(), [&](auto type) {
    using T = decltype(type);
    for (std::int64_t i = 0; i < sum.elements(); ++i)
      store(to, i, rounded<T>(computed(load<T>(to, i)) + computed(load<T>(from, i))));
  });
}

}  // namespace

// ---- TensorBlock

TensorBlock::TensorBlock(const std::vector<std::int64_t>& elements,
                         const std::vector<DType>& dtypes, ByteCount* count, bool zeros)
    : count_(count) {
  std::vector<std::size_t> offsets;
  for (std::size_t i = 0; i < elements.size(); ++i) {
    offsets.push_back(bytes_);
    const std::size_t size = static_cast<std::size_t>(elements[i]) * size_of(dtypes[i]);
    bytes_ += (size + tensor_alignment - 1) / tensor_alignment * tensor_alignment;
  }
  data_ = static_cast<std::byte*>(
      ::operator new (std::max(bytes_, tensor_alignment), std::align_val_t{tensor_alignment}));
  if (zeros) std::memset(data_, 0, bytes_);
  for (std::size_t i = 0; i < elements.size(); ++i)
    views_.emplace_back(data_ + offsets[i], Shape(elements[i]), dtypes[i]);
  if (count_ == nullptr) return;
  count_->now += static_cast<std::int64_t>(bytes_);
  count_->most = std::max(count_->most, count_->now);
}

TensorBlock::~TensorBlock() { free(); }

TensorBlock::TensorBlock(TensorBlock&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      count_(other.count_),
      views_(std::move(other.views_)) {}

TensorBlock& TensorBlock::operator=(TensorBlock&& other) noexcept {
  if (this == &other) return *this;
  free();
  data_ = std::exchange(other.data_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  count_ = other.count_;
  views_ = std::move(other.views_);
  return *this;
}

void TensorBlock::free() noexcept {
  if (data_ == nullptr) return;
  if (count_ != nullptr) count_->now -= static_cast<std::int64_t>(bytes_);
  ::operator delete (data_, std::align_val_t{tensor_alignment});
  data_ = nullptr;
  bytes_ = 0;
  views_.clear();
}

// ---- HostUnit

HostUnit::HostUnit(const ShardedModel::Unit& unit, ShardPosition position, UnitBytes& bytes)
    : name_(unit.name), position_(position), bytes_(&bytes) {
  std::vector<std::int64_t> own;
  for (const ShardedModel::Parameter& parameter : unit.parameters) {
    names_.push_back(parameter.name);
    elements_.push_back(parameter.elements);
    dtypes_.push_back(parameter.dtype);
    own.push_back(position.size(parameter.elements));
  }
  shards_ = TensorBlock(own, dtypes_, nullptr, /*zeros=*/true);
  sums_ = TensorBlock(own, dtypes_, nullptr, /*zeros=*/true);
}

HostUnit::~HostUnit() = default;

std::string HostUnit::describe(std::size_t i) const {
  return fmt::format("{}, {} elements in unit '{}'", to_string(dtypes_[i]), elements_[i], name_);
}

Shard HostUnit::shard(std::size_t i) const {
  return {
      .parameter = 0, .begin = position_.begin(elements_[i]), .end = position_.end(elements_[i])};
}

TensorBlock HostUnit::make_whole() const {
  return {elements_, dtypes_, &bytes_->parameters, /*zeros=*/true};
}

void HostUnit::take_shards(const TensorBlock& whole) {
  for (std::size_t i = 0; i < size(); ++i) {
    const TensorView& own = shards_.views()[i];
    const auto begin = static_cast<std::size_t>(shard(i).begin);
    std::memcpy(own.data(), data_of(whole.views()[i]) + begin * size_of(dtypes_[i]), bytes_of(own));
  }
}

std::vector<ConstTensorView> HostUnit::whole() const {
  return {whole_.views().begin(), whole_.views().end()};
}

void HostUnit::allocate() {
  whole_ = TensorBlock(elements_, dtypes_, &bytes_->parameters, /*zeros=*/false);
}

std::vector<ConstTensorView> HostUnit::shards() {
  return {shards_.views().begin(), shards_.views().end()};
}

std::vector<void*> HostUnit::places() {
  std::vector<void*> places;
  for (const TensorView& view : whole_.views()) places.push_back(view.data());
  return places;
}

// The stamp has some elements of each shard: a step changes nearly all.
std::size_t HostUnit::stamp() const {
  constexpr std::int64_t samples = 8;
  std::size_t stamp = 0;
  for (const TensorView& own : shards_.views()) {
    const std::size_t size = size_of(own.dtype());
    const std::int64_t stride = std::max<std::int64_t>(own.elements() / samples, 1);
    for (std::int64_t i = 0; i < own.elements(); i += stride) {
      const auto* const element =
          reinterpret_cast<const char*>(data_of(own)) + static_cast<std::size_t>(i) * size;
      stamp = stamp * 31 + std::hash<std::string_view>()({element, size});
    }
  }
  return stamp;
}

// ---- Gradients

/// The whole gradients of one reduction.
class HostUnit::Gradients final : public UnitGradients {
 public:
  explicit Gradients(HostUnit& unit) : unit_(&unit) {
    (void)unit.whole_gradients();
    whole_ = std::move(unit.gradients_);
    std::vector<std::int64_t> own;
    for (const TensorView& shard : unit.sums_.views()) own.push_back(shard.elements());
    shards_ = TensorBlock(own, unit.dtypes_, nullptr, /*zeros=*/false);
  }

  [[nodiscard]] std::vector<ConstTensorView> whole() const override {
    return {whole_.views().begin(), whole_.views().end()};
  }
  [[nodiscard]] std::vector<TensorView> shards() const override { return shards_.views(); }
  [[nodiscard]] bool is_undivided() const override { return false; }

  // The first gradients replace zeros, because adding would turn a negative zero into a positive
  // one.
  void accumulate() override {
    whole_.free();
    for (std::size_t i = 0; i < unit_->size(); ++i) {
      const TensorView& sum = unit_->sums_.views()[i];
      const TensorView& own = shards_.views()[i];
      if (unit_->has_sums_) {
        add_to(sum, own);
      } else {
        std::memcpy(sum.data(), own.data(), bytes_of(own));
      }
    }
    unit_->has_sums_ = true;
    shards_.free();
  }

 private:
  HostUnit* unit_;
  TensorBlock whole_{};
  TensorBlock shards_{};
};

const std::vector<TensorView>& HostUnit::whole_gradients() {
  if (gradients_.is_empty())
    gradients_ = TensorBlock(elements_, dtypes_, &bytes_->gradients, /*zeros=*/true);
  return gradients_.views();
}

std::unique_ptr<UnitGradients> HostUnit::take_gradients() {
  return std::make_unique<Gradients>(*this);
}

void HostUnit::zero_gradients() {
  for (const TensorView& sum : sums_.views()) std::memset(sum.data(), 0, bytes_of(sum));
  has_sums_ = false;
  gradients_.free();
}

}  // namespace kolo::internal
