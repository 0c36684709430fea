// SPDX-License-Identifier: Apache-2.0
// The modules of a fully sharded model: those whose parameters are gathered and freed together.
#pragma once

// clang 14 can read LibTorch 1.13 in C++20 only if this comes first.
#include <ATen/core/ivalue.h>

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/serialize/archive.h>

#include <concepts>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "kolo/export.hpp"
#include "kolo/process_set.hpp"

namespace kolo {
namespace internal {
class ShardedUnit;
class UnitUse;
}  // namespace internal

namespace detail {

/// The part of a `Sharded` module that FullySharded finds and uses. Without a FullySharded, and
/// outside of `ConstructSharded`, it does nothing.
class KOLO_EXPORT ShardedModule {
 public:
  virtual ~ShardedModule();

  /// A call of the module's forward: gathers its parameters, and frees them at the end.
  class KOLO_EXPORT Call {
   public:
    explicit Call(const ShardedModule& module);
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    /// Makes backward gather the parameters before it comes to the operations of this call.
    void add_result(const ::torch::Tensor& tensor);
    /// To be called unless forward throws. Throws the errors of the gathers.
    void end();

   private:
    std::unique_ptr<internal::UnitUse> use_;  // null if the module is no unit
  };

 protected:
  ShardedModule() noexcept;
  ShardedModule(const ShardedModule&) noexcept;
  ShardedModule& operator=(const ShardedModule&) noexcept;
  /// Called once the module is constructed.
  void constructed(::torch::nn::Module& module);
  void zero_gradients(bool set_to_none);
  /// Throw InvalidArgument if the module's parameters are divided; `require_whole` unless they are
  /// gathered.
  void require_undivided(const char* function) const;
  void require_whole(const char* function) const;

 private:
  friend class internal::ShardedUnit;
  std::shared_ptr<internal::ShardedUnit> unit_;
};

}  // namespace detail

/// Calls `use(tensor)` with each tensor in the result of a unit's forward. Overload it, in the
/// namespace of your type, for other results than tensors and the standard containers of them.
template <typename F>
void for_each_tensor(const ::torch::Tensor& tensor, const F& use);
template <typename T, typename F>
void for_each_tensor(const std::vector<T>& values, const F& use);
template <typename T, typename F>
void for_each_tensor(const std::optional<T>& value, const F& use);
template <typename A, typename B, typename F>
void for_each_tensor(const std::pair<A, B>& values, const F& use);
template <typename... T, typename F>
void for_each_tensor(const std::tuple<T...>& values, const F& use);
template <typename Key, typename T, typename F>
void for_each_tensor(const std::map<Key, T>& values, const F& use);

template <typename F>
void for_each_tensor(const ::torch::Tensor& tensor, const F& use) {
  if (tensor.defined()) use(tensor);
}
template <typename T, typename F>
void for_each_tensor(const std::vector<T>& values, const F& use) {
  for (const T& value : values) for_each_tensor(value, use);
}
template <typename T, typename F>
void for_each_tensor(const std::optional<T>& value, const F& use) {
  if (value) for_each_tensor(*value, use);
}
template <typename A, typename B, typename F>
void for_each_tensor(const std::pair<A, B>& values, const F& use) {
  for_each_tensor(values.first, use);
  for_each_tensor(values.second, use);
}
template <typename... T, typename F>
void for_each_tensor(const std::tuple<T...>& values, const F& use) {
  std::apply([&](const T&... value) { (for_each_tensor(value, use), ...); }, values);
}
template <typename Key, typename T, typename F>
void for_each_tensor(const std::map<Key, T>& values, const F& use) {
  for (const auto& [key, value] : values) for_each_tensor(value, use);
}

namespace detail {

template <typename Impl>
class UnitImpl : public Impl, public ShardedModule {
 public:
  template <typename... Args>
    requires std::constructible_from<Impl, Args...>
  explicit UnitImpl(Args&&... args) : Impl(std::forward<Args>(args)...) {}
};

// Each of these replaces a function of LibTorch's Module, unless `Impl` has a function of this name
// of its own.

/// `zero_grad` also zeroes or removes the gradients of the shards.
template <typename Impl>
class ZeroesShards : public UnitImpl<Impl> {
 public:
  using UnitImpl<Impl>::UnitImpl;
};
template <typename Impl>
  requires std::same_as<decltype(&Impl::zero_grad), void (::torch::nn::Module::*)(bool)>
class ZeroesShards<Impl> : public UnitImpl<Impl> {
 public:
  using UnitImpl<Impl>::UnitImpl;
  void zero_grad(bool set_to_none) override {
    this->zero_gradients(set_to_none);
    Impl::zero_grad(set_to_none);
  }
  void zero_grad() { static_cast<::torch::nn::Module&>(*this).zero_grad(); }
};

/// Freed parameters are not saved.
template <typename Impl>
class SavesWhole : public ZeroesShards<Impl> {
 public:
  using ZeroesShards<Impl>::ZeroesShards;
};
template <typename Impl>
  requires std::same_as<decltype(&Impl::save),
                        void (::torch::nn::Module::*)(::torch::serialize::OutputArchive&) const>
class SavesWhole<Impl> : public ZeroesShards<Impl> {
 public:
  using ZeroesShards<Impl>::ZeroesShards;
  void save(::torch::serialize::OutputArchive& archive) const override {
    this->require_whole("save");
    Impl::save(archive);
  }
};

/// Divided parameters are not loaded.
template <typename Impl>
class LoadsUndivided : public SavesWhole<Impl> {
 public:
  using SavesWhole<Impl>::SavesWhole;
};
template <typename Impl>
  requires std::same_as<decltype(&Impl::load),
                        void (::torch::nn::Module::*)(::torch::serialize::InputArchive&)>
class LoadsUndivided<Impl> : public SavesWhole<Impl> {
 public:
  using SavesWhole<Impl>::SavesWhole;
  void load(::torch::serialize::InputArchive& archive) override {
    this->require_undivided("load");
    Impl::load(archive);
  }
};

template <typename Impl, typename Forward = decltype(&Impl::forward)>
class ShardedImpl;

/// An `Impl` whose forward is that of a unit.
template <typename Impl, typename Owner, typename Result, typename... Arguments>
class ShardedImpl<Impl, Result (Owner::*)(Arguments...)> : public LoadsUndivided<Impl> {
 public:
  template <typename... Args>
    requires std::constructible_from<Impl, Args...>
  explicit ShardedImpl(Args&&... args) : LoadsUndivided<Impl>(std::forward<Args>(args)...) {
    this->constructed(*this);
  }

  Result forward(Arguments... arguments) {
    ShardedModule::Call call(*this);
    Result result = Impl::forward(std::forward<Arguments>(arguments)...);
    for_each_tensor(result, [&](const ::torch::Tensor& tensor) { call.add_result(tensor); });
    call.end();
    return result;
  }
};

template <typename Impl, typename Owner, typename Result, typename... Arguments>
class ShardedImpl<Impl, Result (Owner::*)(Arguments...) const>
    : public ShardedImpl<Impl, Result (Owner::*)(Arguments...)> {
 public:
  using ShardedImpl<Impl, Result (Owner::*)(Arguments...)>::ShardedImpl;
};

}  // namespace detail

/// A module that is a unit of a FullySharded model: write `Sharded<Block>` instead of `Block`,
/// where `Block` is a holder made by `TORCH_MODULE`. It takes the arguments of `Block`, derives
/// from `BlockImpl`, and has the same members and names of parameters. `forward` must be one
/// function, neither a template nor overloaded. Default arguments of `forward` are not
/// kept: pass all.
template <typename Holder>
class Sharded
    : public ::torch::nn::ModuleHolder<detail::ShardedImpl<typename Holder::ContainedType>> {
 public:
  using ::torch::nn::ModuleHolder<
      detail::ShardedImpl<typename Holder::ContainedType>>::ModuleHolder;
};

/// A guard. While it lives, each `Sharded` module that this thread constructs keeps only this
/// rank's shards of its parameters, as soon as its constructor ends:
///
///     kolo::Sharded<GPT> model = [] {
///       const kolo::ConstructSharded guard;
///       return kolo::Sharded<GPT>(width);
///     }();
///
/// So no rank ever holds the whole model: at most its shards, the unit under construction, and the
/// parameters of the units around it. Seed the generator equally on all ranks, so that the shards
/// are those of one model. Parameters then read as NaN, and the model cannot compute until a
/// FullySharded takes it. Needs a session. Not nestable.
class [[nodiscard]] ConstructSharded {
 public:
  /// `set` must be the process set of the FullySharded that takes the model.
  KOLO_EXPORT explicit ConstructSharded(const ProcessSet& set = {});
  KOLO_EXPORT ~ConstructSharded();
  ConstructSharded(const ConstructSharded&) = delete;
  ConstructSharded& operator=(const ConstructSharded&) = delete;
};

}  // namespace kolo
