// SPDX-License-Identifier: Apache-2.0
// Elastic training: ranks may be lost or join while a program trains.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "kolo/error.hpp"
#include "kolo/export.hpp"
#include "kolo/state_handler.hpp"
#include "kolo/tensor.hpp"

namespace kolo::elastic {

/// Ranks are about to join or leave, and all ranks have agreed on it. `State::commit` and
/// `State::check_membership` throw this error on all ranks. `run` catches it and begins the next
/// session: do not catch it in `train`.
class KOLO_EXPORT MembershipChanged : public Error {
 public:
  using Error::Error;
};

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
  /// - samplers, `ReduceOnPlateau`, and all other classes with `state() const` and `load_state`,
  ///   which return and take a `std::string` or a StateDict;
  /// - optimizers and all other classes with `rejoin()`, which `sync` calls; see
  ///   DistributedOptimizer;
  /// - with LibTorch: modules, tensors, optimizers, GradScaler.
  ///
  /// Also adds parts that differ between ranks: MetricAverage, and the errors that communication
  /// hooks keep. A lost rank's values are lost, and new ranks start without any.
  ///
  /// Throws InvalidArgument for an empty or repeated name, and while `run` runs.
  template <typename T>
    requires(!std::derived_from<T, StateHandler> &&
             !detail::is_shared_pointer<std::remove_const_t<T>>)
  State& add(const std::string& name, T& part) {
    return add_handler(name, detail::make_handler(part));
  }
  /// Adds the object that a shared pointer refers to, and keeps it alive: a communication hook, or
  /// a module of LibTorch. Throws InvalidArgument for null.
  template <typename T>
  State& add(const std::string& name, const std::shared_ptr<T>& part) {
    return add_handler(
        name, detail::KeepingHandler::make(part, [&] { return detail::make_handler(*part); }));
  }
  /// Adds memory on the CPU, such as the parameters of a model. It must stay in place.
  State& add(std::string name, TensorView memory);
  State& add(std::string name, std::vector<NamedTensor> tensors);
  /// Adds an object through a handler of your own class.
  State& add_handler(std::string name, std::unique_ptr<StateHandler> handler);

  /// Registers a function that runs on all ranks before each call of `train`, including the first,
  /// after all parts are loaded. Use it to set values that depend on the number of ranks, such
  /// as the learning rate, and to create process sets. `call` may be collective.
  void on_reset(std::function<void()> call);

  /// Commits all parts. Collective: once all ranks have reached the commit, each copies its
  /// parts. So ranks differ by at most one commit, and all earlier operations are complete on all
  /// ranks. Call it between steps. Do not call it while operations are pending, between the
  /// backward passes of a step, or after `join` before all ranks have joined. Throws
  /// MembershipChanged, after the copy, if ranks are to join or leave, and the errors of
  /// `allreduce`. Throws Mismatch on all ranks if some of them call a different function.
  void commit();
  /// As `commit`, but copies only if ranks are to join or leave; in that case no step is lost.
  void check_membership();

  /// Sets the parts to this rank's last commit. Not collective. Throws InvalidArgument if there is
  /// none.
  void restore();
  /// Sets the parts of all ranks to the newest commit. If no rank has one, rank 0's parts become
  /// the first commit. A commit that a rank receives only partially is discarded. Collective; `run`
  /// calls it. Throws Mismatch on all ranks if they have different parts, tensors of different
  /// shapes or dtypes, or call a different function.
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
