// SPDX-License-Identifier: Apache-2.0
// A unit of a ShardedModel in the memory of the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kolo/sharded_optimizer.hpp"
#include "kolo/tensor.hpp"
#include "kolo/training/sharded_model.hpp"
#include "training/optimizer/shard_gather.hpp"
#include "training/sharded/unit_memory.hpp"

namespace kolo::internal {

/// The bytes that some objects have now, and the most that they have had.
struct ByteCount {
  std::int64_t now = 0;
  std::int64_t most = 0;
};

/// The bytes of all whole units of a model.
struct UnitBytes {
  ByteCount parameters{};
  ByteCount gradients{};
};

/// Memory for several tensors, which are aligned for vector instructions. Not counted if `count` is
/// null.
class TensorBlock {
 public:
  TensorBlock() = default;
  TensorBlock(const std::vector<std::int64_t>& elements, const std::vector<DType>& dtypes,
              ByteCount* count, bool zeros);
  ~TensorBlock();
  TensorBlock(TensorBlock&& other) noexcept;
  TensorBlock& operator=(TensorBlock&& other) noexcept;

  /// Without memory, until it is constructed from tensors.
  [[nodiscard]] bool is_empty() const { return data_ == nullptr; }
  /// The tensors, each with one dimension.
  [[nodiscard]] const std::vector<TensorView>& views() const { return views_; }
  void free() noexcept;

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  ByteCount* count_ = nullptr;
  std::vector<TensorView> views_{};
};

/// The parameters of a unit and their gradients: this rank's shards, and the whole ones while they
/// are needed.
class HostUnit final : public UnitMemory {
 public:
  HostUnit(const ShardedModel::Unit& unit, ShardPosition position, UnitBytes& bytes);
  ~HostUnit() override;

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] std::size_t size() const { return elements_.size(); }
  [[nodiscard]] const std::string& parameter_name(std::size_t i) const { return names_[i]; }
  /// For example "f32, 64 elements in unit 'layer.0'".
  [[nodiscard]] std::string describe(std::size_t i) const;

  /// Copies this rank's shards from whole parameters.
  void take_shards(const TensorBlock& whole);
  [[nodiscard]] TensorBlock make_whole() const;
  /// The elements [begin, end) of this rank's shard of a parameter; its index is not set.
  [[nodiscard]] Shard shard(std::size_t i) const;
  [[nodiscard]] const std::vector<TensorView>& parameter_shards() const { return shards_.views(); }
  [[nodiscard]] const std::vector<TensorView>& gradient_shards() const { return sums_.views(); }
  /// The whole parameters, between `allocate` and `free`.
  [[nodiscard]] std::vector<ConstTensorView> whole() const;
  /// The whole gradients that are not reduced yet. Zeros if there are none.
  [[nodiscard]] const std::vector<TensorView>& whole_gradients();
  void zero_gradients();

  void allocate() override;
  void free() noexcept override { whole_.free(); }
  [[nodiscard]] bool is_undivided() const override { return false; }
  [[nodiscard]] std::vector<ConstTensorView> shards() override;
  [[nodiscard]] std::vector<void*> places() override;
  [[nodiscard]] std::vector<std::int64_t> elements() const override { return elements_; }
  void gathered() noexcept override {}
  // A program changes shards by pointers, so nothing counts its changes.
  [[nodiscard]] std::int64_t version() const override { return 0; }
  [[nodiscard]] std::size_t stamp() const override;
  [[nodiscard]] std::unique_ptr<UnitGradients> take_gradients() override;
  // The shards of the gradients always exist, so it does not matter who has made them.
  std::vector<std::int32_t> take_used() override {
    return std::vector<std::int32_t>(elements_.size());
  }
  void end_pass(const std::vector<std::int32_t>& /*used*/) override {}
  void fail_pass() noexcept override { gradients_.free(); }

 private:
  class Gradients;

  std::string name_;
  ShardPosition position_;
  UnitBytes* bytes_;
  std::vector<std::string> names_{};
  std::vector<std::int64_t> elements_{};  // in each whole parameter
  std::vector<DType> dtypes_{};
  TensorBlock shards_{};
  TensorBlock sums_{};       // the shards of the gradients
  bool has_sums_ = false;    // else they are zeros
  TensorBlock whole_{};      // parameters
  TensorBlock gradients_{};  // whole, not reduced yet
};

}  // namespace kolo::internal
