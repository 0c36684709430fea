// SPDX-License-Identifier: Apache-2.0
// How kolo::elastic::State saves and loads the objects that are added to it.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <ranges>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "kolo/communication_hook.hpp"
#include "kolo/export.hpp"
#include "kolo/state_dict.hpp"
#include "kolo/tensor.hpp"

namespace kolo::elastic {

/// Saves and loads one object of a State. Derive from this class for objects that `State::add` does
/// not know. Not thread-safe.
class KOLO_EXPORT StateHandler {
 public:
  StateHandler() = default;
  StateHandler(const StateHandler&) = delete;
  StateHandler& operator=(const StateHandler&) = delete;
  virtual ~StateHandler() = default;

  /// Stores the values that are equal on all ranks. `state` may hold an earlier commit, to reuse
  /// its memory.
  virtual void save(StateDict& state) = 0;
  /// Sets the object to what `save` stored, possibly in another process. Called on all ranks.
  virtual void load(const StateDict& state) = 0;
  /// True if `save` is a collective call.
  [[nodiscard]] virtual bool saves_together() const { return false; }

  /// As `save` and `load`, for values that differ between ranks. `load_per_rank` is called after
  /// `load`. It is not called if this process has no such values: the object stays as `load` left
  /// it.
  virtual void save_per_rank(StateDict& /*state*/) {}
  virtual void load_per_rank(const StateDict& /*state*/) {}

  /// The layout that must be equal on all ranks, such as {"weight", "f32 [64, 3]"} for each tensor:
  /// a name, which may be empty, and a description. `State::sync` compares the lists.
  [[nodiscard]] virtual std::vector<std::pair<std::string, std::string>> layout() const {
    return {};
  }

  /// Called when a session has begun, before `load`: ranks and their number may have changed. Must
  /// discard an unfinished step. Collective.
  virtual void rejoin() {}
};

/// Determines how a State saves and loads a `T`. Specialize it for your class, with
/// `static std::unique_ptr<StateHandler> make(T& object)`.
template <typename T>
struct HandlerFor;

namespace detail {

template <typename T>
concept HasState = requires(T& object, const StateDict& state) {
  { std::as_const(object).state() } -> std::convertible_to<StateDict>;
  object.load_state(state);
};

/// A class with a state to save. If its `load_state` takes neither the StateDict nor text, the
/// state would be saved and never loaded.
template <typename T>
concept HasStateToSave = requires(const T& object) {
  { object.state() } -> std::convertible_to<StateDict>;
};

template <typename T>
concept Rejoins = requires(T& object) {
  object.rejoin();
};

/// Objects whose values differ between ranks, such as metrics.
template <typename T>
concept DiffersBetweenRanks = requires(T& object) {
  requires T::differs_between_ranks;
  object.reset();
};

template <typename T>
concept IsHook = std::derived_from<T, CommunicationHook>;

/// A vector, or another range of elements in one block of memory whose size may change.
template <typename T>
concept ResizableRange = TensorRange<T&> && requires(T& range) {
  range.resize(std::size_t{});
};

template <typename T>
concept IsKnown = requires(T& object) {
  { HandlerFor<T>::make(object) } -> std::same_as<std::unique_ptr<StateHandler>>;
};

template <typename T>
inline constexpr bool is_shared_pointer = false;
template <typename T>
inline constexpr bool is_shared_pointer<std::shared_ptr<T>> = true;

KOLO_EXPORT void throw_wrong_size(std::size_t expected, std::size_t found);
/// Sets the state to these bytes, in the memory of its earlier bytes if they suffice.
KOLO_EXPORT void save_bytes(StateDict& state, const void* data, std::size_t bytes);

/// Calls `state`, `load_state`, `reset` and `rejoin` of the object, if it has them.
template <typename T>
class ObjectHandler : public StateHandler {
 public:
  static_assert(
      HasState<T> || !requires(T & object) { object.param_groups(); },
      "kolo::elastic::State::add: include kolo/torch/elastic.hpp for LibTorch's optimizers");
  static_assert(HasState<T> || !HasStateToSave<T>,
                "kolo::elastic::State::add: the class has state(), but no "
                "load_state(const StateDict&) or load_state(const std::string&)");
  explicit ObjectHandler(T& object) : object_(object) {}

  void save(StateDict& state) override {
    if constexpr (HasState<T> && !DiffersBetweenRanks<T>) state = object_.state();
  }
  void load(const StateDict& state) override {
    if constexpr (DiffersBetweenRanks<T>) {
      object_.reset();
    } else if constexpr (HasState<T>) {
      object_.load_state(state);
    }
  }
  void save_per_rank(StateDict& state) override {
    if constexpr (DiffersBetweenRanks<T>) state = object_.state();
  }
  void load_per_rank(const StateDict& state) override {
    if constexpr (DiffersBetweenRanks<T>) object_.load_state(state);
  }
  void rejoin() override {
    if constexpr (Rejoins<T>) object_.rejoin();
  }

 private:
  T& object_;
};

/// A vector or a string; its size is saved too.
template <typename T>
class RangeHandler : public StateHandler {
 public:
  explicit RangeHandler(T& range) : range_(range) {}

  void save(StateDict& state) override {
    save_bytes(state, range_.data(), range_.size() * element_bytes);
  }
  void load(const StateDict& state) override {
    const std::string& bytes = state.text();
    if (bytes.size() % element_bytes != 0) throw_wrong_size(element_bytes, bytes.size());
    if (range_.size() * element_bytes != bytes.size()) range_.resize(bytes.size() / element_bytes);
    if (!bytes.empty()) std::memcpy(range_.data(), bytes.data(), bytes.size());
  }

 private:
  static constexpr std::size_t element_bytes = sizeof(std::ranges::range_value_t<T>);
  T& range_;
};

/// Memory of a fixed size. Names may be empty, but not repeated.
class KOLO_EXPORT MemoryHandler : public StateHandler {
 public:
  /// Throws InvalidArgument for a repeated name, and for a tensor that cannot exist.
  explicit MemoryHandler(std::vector<NamedTensor> tensors);

  void save(StateDict& state) override;
  void load(const StateDict& state) override;
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> layout() const override;

 private:
  std::vector<NamedTensor> tensors_;
};

template <typename T>
class ValueHandler : public StateHandler {
 public:
  explicit ValueHandler(T& value) : value_(value) {}

  void save(StateDict& state) override { save_bytes(state, &value_, sizeof value_); }
  void load(const StateDict& state) override {
    const std::string& bytes = state.text();
    if (bytes.size() != sizeof value_) throw_wrong_size(sizeof value_, bytes.size());
    std::memcpy(&value_, bytes.data(), sizeof value_);
  }
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> layout() const override {
    return {{"", std::to_string(sizeof value_) + " bytes"}};
  }

 private:
  T& value_;
};

class KOLO_EXPORT HookHandler : public StateHandler {
 public:
  explicit HookHandler(CommunicationHook& hook) : hook_(hook) {}

  void save(StateDict& state) override { state = hook_.state(); }
  void load(const StateDict& state) override { hook_.load_state(state); }
  void save_per_rank(StateDict& state) override { state = hook_.per_rank_state(); }
  void load_per_rank(const StateDict& state) override { hook_.load_per_rank_state(state); }

 private:
  CommunicationHook& hook_;
};

/// Keeps the object of another handler alive.
class KOLO_EXPORT KeepingHandler : public StateHandler {
 public:
  /// Throws InvalidArgument for null.
  static std::unique_ptr<StateHandler> make(
      std::shared_ptr<void> object, const std::function<std::unique_ptr<StateHandler>()>& make);

  void save(StateDict& state) override { handler_->save(state); }
  void load(const StateDict& state) override { handler_->load(state); }
  [[nodiscard]] bool saves_together() const override { return handler_->saves_together(); }
  void save_per_rank(StateDict& state) override { handler_->save_per_rank(state); }
  void load_per_rank(const StateDict& state) override { handler_->load_per_rank(state); }
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> layout() const override {
    return handler_->layout();
  }
  void rejoin() override { handler_->rejoin(); }

 private:
  std::shared_ptr<void> object_;
  std::unique_ptr<StateHandler> handler_;
};

template <typename T>
std::unique_ptr<StateHandler> make_handler(T& object) {
  if constexpr (IsKnown<T>) {
    return HandlerFor<T>::make(object);
  } else if constexpr (IsHook<T>) {
    return std::make_unique<HookHandler>(object);
  } else if constexpr (HasState<T> || Rejoins<T>) {
    return std::make_unique<ObjectHandler<T>>(object);
  } else if constexpr (std::same_as<T, std::string> || ResizableRange<T>) {
    return std::make_unique<RangeHandler<T>>(object);
  } else if constexpr (std::same_as<T, TensorView>) {
    return std::make_unique<MemoryHandler>(std::vector<NamedTensor>{{"", object}});
  } else if constexpr (std::same_as<T, std::vector<NamedTensor>>) {
    return std::make_unique<MemoryHandler>(object);
  } else if constexpr (TensorRange<T&>) {
    return std::make_unique<MemoryHandler>(std::vector<NamedTensor>{{"", TensorView(object)}});
  } else {
    static_assert(std::is_arithmetic_v<T> || std::is_enum_v<T>,
                  "kolo::elastic::State::add: give the class `std::string state() const` and "
                  "`void load_state(const std::string&)`, or specialize kolo::elastic::HandlerFor");
    return std::make_unique<ValueHandler<T>>(object);
  }
}

}  // namespace detail

}  // namespace kolo::elastic
