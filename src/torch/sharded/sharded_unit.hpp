// SPDX-License-Identifier: Apache-2.0
// A unit of a fully sharded model: its shards, and the memory of its whole parameters.
#pragma once

#include <c10/core/Storage.h>
#include <torch/csrc/autograd/function.h>
#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kolo/torch/fully_sharded.hpp"
#include "torch/optimizer/parameter_shards.hpp"
#include "torch/sharded/sharded_parameter.hpp"
#include "training/optimizer/shard_gather.hpp"
#include "training/sharded/unit_memory.hpp"

namespace kolo::internal {

class ShardedUnit;

/// Is told of the uses of units, in forward and in the autograd graph.
class UnitListener {
 public:
  virtual ~UnitListener() = default;
  virtual void enter(ShardedUnit& unit, bool recording) = 0;
  /// Does not throw if `threw`.
  virtual void leave(ShardedUnit& unit, bool threw) = 0;
  /// Results of a use have become part of the graph. `computes_again`: some by `checkpointed`.
  virtual void note_recorded(ShardedUnit& unit, bool computes_again) = 0;
  /// `is_first`: of the results of one use.
  virtual void enter_backward(ShardedUnit& unit, std::size_t stamp, bool is_first) = 0;
  /// `gradients`: from autograd, as `ShardedUnit::add_gradients` takes them.
  virtual void gradients_complete(ShardedUnit& unit, std::vector<::torch::Tensor> gradients) = 0;
};

/// The parameters of one unit.
///
/// Each shard is a leaf of its own. The module's tensors stay the same objects: while the unit is
/// gathered, they are views of one storage, whose memory comes and goes without a change of their
/// version counters, so that tensors that autograd has saved stay valid. While it is not, they are
/// an expanded NaN. LibTorch refuses most writes to it; the next gather notices the others. In a
/// set of one rank, the shards lie where the whole parameters are, and nothing is copied.
///
/// The trained ones are never leaves. Their `grad_fn` is one node for the unit, which autograd runs
/// once the gradients of all uses have arrived, in any number of forwards.
class ShardedUnit final : public UnitMemory, public std::enable_shared_from_this<ShardedUnit> {
 public:
  using NodePointer = decltype(::torch::autograd::Edge::function);

  /// A parameter of the module, with the name that messages use.
  struct Parameter {
    std::string name;
    ::torch::Tensor tensor;
  };

  /// Divides parameters, and frees them. Throws InvalidArgument for one that cannot be divided.
  ShardedUnit(std::vector<Parameter> parameters, ShardPosition position);
  ~ShardedUnit() override;
  ShardedUnit(const ShardedUnit&) = delete;
  ShardedUnit& operator=(const ShardedUnit&) = delete;

  /// The unit of a module; null if it has none.
  [[nodiscard]] static const std::shared_ptr<ShardedUnit>& of(const detail::ShardedModule& module) {
    return module.unit_;
  }
  static void set(detail::ShardedModule& module, std::shared_ptr<ShardedUnit> unit) {
    module.unit_ = std::move(unit);
  }

  /// Connects the unit with a FullySharded, which knows it by this index. `may_share`: in a set of
  /// one rank, shards may have the memory of the whole parameters, and so keep what forward writes
  /// to these. Copies of a model must not: their ranks would write different values.
  void connect(std::weak_ptr<UnitListener> listener, std::size_t index,
               std::optional<::torch::Dtype> compute, bool may_share);
  void disconnect() { listener_.reset(); }
  [[nodiscard]] std::shared_ptr<UnitListener> listener() const { return listener_.lock(); }
  [[nodiscard]] std::size_t index() const { return index_; }
  [[nodiscard]] ShardPosition position() const { return position_; }

  /// Gives this rank other shards, whose elements are NaN until they are loaded.
  void divide_anew(ShardPosition position);

  /// Adds a parameter that several units use, before `connect`.
  void add(Parameter parameter);

  [[nodiscard]] std::size_t size() const { return entries_.size(); }
  void rename(std::size_t i, const std::string& name) { entries_[i].name = name; }
  [[nodiscard]] const std::string& name(std::size_t i) const { return entries_[i].name; }
  [[nodiscard]] const ::torch::Tensor& whole(std::size_t i) const { return entries_[i].whole; }
  [[nodiscard]] const ::torch::Tensor& shard(std::size_t i) const { return entries_[i].shard; }
  /// The whole parameter's shape, in the dtype of the shards, with the memory of `elements`.
  [[nodiscard]] ::torch::Tensor shaped(std::size_t i, const ::torch::Tensor& elements) const;
  [[nodiscard]] bool is_row_major(std::size_t i) const;
  /// The shard with its whole parameter, which is on LibTorch's meta device.
  [[nodiscard]] ParameterShard description(std::size_t i) const;
  [[nodiscard]] std::string describe(std::size_t i) const;
  [[nodiscard]] std::size_t trained() const { return trained_; }
  [[nodiscard]] bool has_frozen() const { return trained_ != entries_.size(); }
  [[nodiscard]] const ::torch::autograd::Node* node() const { return node_.get(); }
  /// True if there are parameters, and some are not gathered.
  [[nodiscard]] bool is_freed() const;
  /// True for a whole parameter, and for a view of one.
  [[nodiscard]] bool has_memory_of(const ::torch::Tensor& tensor) const;

  /// Adds gradients from autograd, one for each trained parameter, undefined where there is none.
  void add_gradients(std::vector<::torch::Tensor> gradients);

  /// Zeroes or removes the gradients of shards, and drops those that were not reduced.
  void zero_gradients(bool set_to_none = true);

  void allocate() override;
  void free() noexcept override;
  [[nodiscard]] bool is_undivided() const override;
  std::vector<ConstTensorView> shards() override;
  std::vector<void*> places() override;
  [[nodiscard]] std::vector<std::int64_t> elements() const override;
  void gathered() noexcept override { wire_.clear(); }
  [[nodiscard]] std::int64_t version() const override;
  [[nodiscard]] std::size_t stamp() const override;
  std::unique_ptr<UnitGradients> take_gradients() override;
  std::vector<std::int32_t> take_used() override;
  void end_pass(const std::vector<std::int32_t>& used) override;
  void fail_pass() noexcept override;

 private:
  class Gradients;

  void place_shards();
  [[nodiscard]] c10::DataPtr memory() const;

  ShardPosition position_;
  std::vector<ShardedParameter> entries_{};
  std::size_t trained_ = 0;
  c10::Storage storage_{};
  std::size_t bytes_ = 0;
  bool may_share_ = false;
  ::torch::Tensor home_{};  // the bytes in which all shards lie if this rank is alone
  NodePointer node_{};
  std::weak_ptr<UnitListener> listener_{};
  std::size_t index_ = 0;
  std::vector<::torch::Tensor> wire_{};  // shards in the dtype of the whole parameters
};

}  // namespace kolo::internal
