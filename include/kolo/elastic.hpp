// SPDX-License-Identifier: Apache-2.0
// Elastic training: ranks may be lost or join while a program trains.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <ranges>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "kolo/communication_hook.hpp"
#include "kolo/error.hpp"
#include "kolo/export.hpp"
#include "kolo/tensor.hpp"

namespace kolo::elastic {

/// Ranks are about to join or leave, and all ranks have agreed on it. `State::commit` and
/// `State::check_membership` throw this error on all ranks. `run` catches it and begins the next
/// session: do not catch it in `train`.
class KOLO_EXPORT MembershipChanged : public Error {
 public:
  using Error::Error;
};

/// Saves and loads one object of a State. Derive from this class for objects that `State::add` does
/// not know. Not thread-safe.
class KOLO_EXPORT Part {
 public:
  Part() = default;
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;
  virtual ~Part() = default;

  /// Stores the values that are equal on all ranks. `bytes` may hold an earlier commit, to reuse
  /// its memory.
  virtual void save(std::string& bytes) = 0;
  /// Sets the object to what `save` stored, possibly in another process. Called on all ranks.
  virtual void load(const std::string& bytes) = 0;
  /// True if `save` is a collective call.
  [[nodiscard]] virtual bool saves_together() const { return false; }

  /// As `save` and `load`, for values that differ between ranks. `load_own` is called after `load`.
  /// It is not called if this process has no such values: the object stays as `load` left it.
  virtual void save_own(std::string& /*bytes*/) {}
  virtual void load_own(const std::string& /*bytes*/) {}

  /// Called when a session has begun, before `load`: ranks and their number may have changed. Must
  /// discard an unfinished step. Collective.
  virtual void rejoin() {}
};

/// Determines how a State saves and loads a `T`. Specialize it for your class, with
/// `static std::unique_ptr<Part> make(T& object)`.
template <typename T>
struct PartFor;

namespace detail {

template <typename T>
concept HasState = requires(T& object, const std::string& bytes) {
  { std::as_const(object).state() } -> std::convertible_to<std::string>;
  object.load(bytes);
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
  { PartFor<T>::make(object) } -> std::same_as<std::unique_ptr<Part>>;
};

template <typename T>
inline constexpr bool is_shared_pointer = false;
template <typename T>
inline constexpr bool is_shared_pointer<std::shared_ptr<T>> = true;

KOLO_EXPORT void throw_wrong_size(std::size_t expected, std::size_t found);

/// Calls `state`, `load`, `reset` and `rejoin` of the object, if it has them.
template <typename T>
class ObjectPart : public Part {
 public:
  static_assert(
      HasState<T> || !requires(T & object) { object.param_groups(); },
      "kolo::elastic::State::add: include kolo/torch/elastic.hpp for LibTorch's optimizers");
  explicit ObjectPart(T& object) : object_(object) {}

  void save(std::string& bytes) override {
    if constexpr (HasState<T> && !DiffersBetweenRanks<T>) bytes = object_.state();
  }
  void load(const std::string& bytes) override {
    if constexpr (DiffersBetweenRanks<T>) {
      object_.reset();
    } else if constexpr (HasState<T>) {
      object_.load(bytes);
    }
  }
  void save_own(std::string& bytes) override {
    if constexpr (DiffersBetweenRanks<T>) bytes = object_.state();
  }
  void load_own(const std::string& bytes) override {
    if constexpr (DiffersBetweenRanks<T>) object_.load(bytes);
  }
  void rejoin() override {
    if constexpr (Rejoins<T>) object_.rejoin();
  }

 private:
  T& object_;
};

/// A vector or a string; its size is saved too.
template <typename T>
class RangePart : public Part {
 public:
  explicit RangePart(T& range) : range_(range) {}

  void save(std::string& bytes) override {
    bytes.assign(reinterpret_cast<const char*>(range_.data()), range_.size() * element_bytes);
  }
  void load(const std::string& bytes) override {
    if (bytes.size() % element_bytes != 0) throw_wrong_size(element_bytes, bytes.size());
    if (range_.size() * element_bytes != bytes.size()) range_.resize(bytes.size() / element_bytes);
    if (!bytes.empty()) std::memcpy(range_.data(), bytes.data(), bytes.size());
  }

 private:
  static constexpr std::size_t element_bytes = sizeof(std::ranges::range_value_t<T>);
  T& range_;
};

/// Memory of a fixed size.
class KOLO_EXPORT MemoryPart : public Part {
 public:
  explicit MemoryPart(std::vector<NamedTensor> tensors) : tensors_(std::move(tensors)) {}

  void save(std::string& bytes) override;
  void load(const std::string& bytes) override;

 private:
  std::vector<NamedTensor> tensors_;
};

template <typename T>
class ValuePart : public Part {
 public:
  explicit ValuePart(T& value) : value_(value) {}

  void save(std::string& bytes) override {
    bytes.assign(reinterpret_cast<const char*>(&value_), sizeof value_);
  }
  void load(const std::string& bytes) override {
    if (bytes.size() != sizeof value_) throw_wrong_size(sizeof value_, bytes.size());
    std::memcpy(&value_, bytes.data(), sizeof value_);
  }

 private:
  T& value_;
};

class KOLO_EXPORT HookPart : public Part {
 public:
  explicit HookPart(CommunicationHook& hook) : hook_(hook) {}

  void save(std::string& bytes) override { bytes = hook_.shared_state(); }
  void load(const std::string& bytes) override { hook_.load_shared_state(bytes); }
  void save_own(std::string& bytes) override { bytes = hook_.own_state(); }
  void load_own(const std::string& bytes) override { hook_.load_own_state(bytes); }

 private:
  CommunicationHook& hook_;
};

/// Keeps the object of another part alive.
class KOLO_EXPORT KeepingPart : public Part {
 public:
  /// Throws InvalidArgument for null.
  static std::unique_ptr<Part> make(std::shared_ptr<void> object,
                                    const std::function<std::unique_ptr<Part>()>& make);

  void save(std::string& bytes) override { part_->save(bytes); }
  void load(const std::string& bytes) override { part_->load(bytes); }
  [[nodiscard]] bool saves_together() const override { return part_->saves_together(); }
  void save_own(std::string& bytes) override { part_->save_own(bytes); }
  void load_own(const std::string& bytes) override { part_->load_own(bytes); }
  void rejoin() override { part_->rejoin(); }

 private:
  std::shared_ptr<void> object_;
  std::unique_ptr<Part> part_;
};

template <typename T>
std::unique_ptr<Part> make_part(T& object) {
  if constexpr (IsKnown<T>) {
    return PartFor<T>::make(object);
  } else if constexpr (IsHook<T>) {
    return std::make_unique<HookPart>(object);
  } else if constexpr (HasState<T> || Rejoins<T>) {
    return std::make_unique<ObjectPart<T>>(object);
  } else if constexpr (std::same_as<T, std::string> || ResizableRange<T>) {
    return std::make_unique<RangePart<T>>(object);
  } else if constexpr (std::same_as<T, TensorView>) {
    return std::make_unique<MemoryPart>(std::vector<NamedTensor>{{"", object}});
  } else if constexpr (std::same_as<T, std::vector<NamedTensor>>) {
    return std::make_unique<MemoryPart>(object);
  } else if constexpr (TensorRange<T&>) {
    return std::make_unique<MemoryPart>(std::vector<NamedTensor>{{"", TensorView(object)}});
  } else {
    static_assert(std::is_arithmetic_v<T> || std::is_enum_v<T>,
                  "kolo::elastic::State::add: give the class `std::string state() const` and "
                  "`void load(const std::string&)`, or specialize kolo::elastic::PartFor");
    return std::make_unique<ValuePart<T>>(object);
  }
}

}  // namespace detail

class State;
KOLO_EXPORT void run(State& state, const std::function<void()>& train);

/// The objects that make up a training run, and their last commit, in memory. A commit is a copy of
/// all parts; each rank has one. If ranks are lost, the others continue from the newest commit.
/// With LibTorch, include `kolo/torch.hpp` for modules and optimizers.
///
/// Add the same parts under the same names in the same order on all ranks, before `run`. Parts are
/// referenced, so they must outlive the state. Not thread-safe.
class KOLO_EXPORT State {
 public:
  State();
  State(State&&) noexcept;
  State& operator=(State&&) noexcept;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State();

  /// Adds a part that is equal on all ranks:
  /// - numbers, enumerations, strings, arrays, vectors of numbers (also SharedVector) of any size;
  /// - samplers, `ReduceOnPlateau`, and all other classes with `std::string state() const` and
  ///   `load(const std::string&)`;
  /// - optimizers and all other classes with `rejoin()`, which `sync` calls; see
  ///   DistributedOptimizer;
  /// - with LibTorch: modules, tensors, optimizers, GradScaler.
  ///
  /// Also adds parts that differ between ranks: MetricAverage, and the errors that communication
  /// hooks keep. A lost rank's values are lost, and new ranks start without any.
  ///
  /// Throws InvalidArgument for an empty or repeated name, and while `run` runs.
  template <typename T>
    requires(!std::derived_from<T, Part> && !detail::is_shared_pointer<std::remove_const_t<T>>)
  State& add(const std::string& name, T& part) { return add_part(name, detail::make_part(part)); }
  /// Adds the object that a shared pointer refers to, and keeps it alive: a communication hook, or
  /// a module of LibTorch. Throws InvalidArgument for null.
  template <typename T>
  State& add(const std::string& name, const std::shared_ptr<T>& part) {
    return add_part(name,
                    detail::KeepingPart::make(part, [&] { return detail::make_part(*part); }));
  }
  /// Adds memory on the CPU, such as the parameters of a model. It must stay in place.
  State& add(std::string name, TensorView memory);
  State& add(std::string name, std::vector<NamedTensor> tensors);
  /// Adds a part of your own class.
  State& add_part(std::string name, std::unique_ptr<Part> part);

  /// Registers a function that runs on all ranks before each call of `train`, including the first,
  /// after all parts are loaded. Use it to set values that depend on the number of ranks, such
  /// as the learning rate, and to create process sets. `call` may be collective.
  void on_reset(std::function<void()> call);

  /// Commits all parts. Collective: once all ranks have reached the commit, each copies its
  /// parts. So ranks differ by at most one commit, and all earlier operations are complete on all
  /// ranks. Call it between steps. Do not call it while operations are pending, between the
  /// backward passes of a step, or after `join` before all ranks have joined. Throws
  /// MembershipChanged, after the copy, if ranks are to join or leave, and the errors of
  /// `allreduce`. Throws InvalidArgument on all ranks if some of them call a different function.
  void commit();
  /// As `commit`, but copies only if ranks are to join or leave; in that case no step is lost.
  void check_membership();

  /// Sets the parts to this rank's last commit. Not collective. Throws InvalidArgument if there is
  /// none.
  void restore();
  /// Sets the parts of all ranks to the newest commit. If no rank has one, rank 0's parts become
  /// the first commit. A commit that a rank receives only partially is discarded. Collective; `run`
  /// calls it. Throws Mismatch on all ranks if they have different parts.
  void sync();

  /// The number of commits so far, including the first one, which `sync` makes; 0: none.
  [[nodiscard]] std::uint64_t commits() const noexcept;

 private:
  friend void run(State& state, const std::function<void()>& train);
  struct Data;
  struct Session;
  std::unique_ptr<Data> data_;
};

/// Calls `train` in one session after another until `train` returns on all ranks. Call
/// `kolo::init` first. Each session begins with `State::sync`, so `train` continues from the newest
/// commit.
///
///     kolo::Session session;                 // a rank that joins later waits here
///     kolo::elastic::State state;
///     state.add("model", model).add("sampler", sampler).add("optimizer", optimizer);
///     kolo::elastic::run(state, [&] {
///       while (sampler.epoch() < epochs) {
///         ...                                // the rest of the epoch
///         state.commit();
///       }
///     });
///
/// A session ends early if a rank is lost (PeerLeft) or does not respond (Stalled; its process is
/// killed), if the backward pass or a hook has failed on another rank and `train` does not catch
/// the error, or if `commit` finds that ranks join or leave. Then the remaining ranks begin the
/// next session in the same process. Any other exception leaves `run`, and the other ranks treat
/// this rank as lost.
///
/// Collectives belong in `train`: before `run` they throw InvalidArgument in an elastic job, since
/// a rank that joins later could not take part. Optimizers may be constructed before `run`; add
/// them to the state. After `run` the number of ranks is fixed, and the loss of a rank raises
/// PeerLeft.
///
/// Needs `kolorun --min-np`, or `--max-np`; otherwise PeerLeft leaves `run` if a rank is lost.
/// Throws ShutDown if the job is over because too few ranks are left. Throws InvalidArgument if
/// called within `run`, if called a second time in an elastic job, and if `train` throws an error
/// of an earlier session, for example from a future of that session. Throws NotInitialized without
/// a session.
KOLO_EXPORT void run(State& state, const std::function<void()>& train);

/// True if the job continues when ranks are lost. False before the first session of the process.
[[nodiscard]] KOLO_EXPORT bool is_elastic() noexcept;

}  // namespace kolo::elastic
