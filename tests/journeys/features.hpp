// SPDX-License-Identifier: Apache-2.0
// The features of training programs. A program has some of them; pairs of features are counted.
#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace kolo::internal::journeys {

enum class Feature : std::uint8_t {
  // data
  uneven,        // ranks have different numbers of steps and join at the end of each epoch
  sampler,       // DistributedSampler and BackgroundLoader give the examples
  accumulation,  // several backward passes per step, with a partial window at the end
  // optimizer
  clipping,
  skipped_steps,  // after synchronize, as a trainer skips a step with an infinity
  unused_parameters,
  frozen_parameters,
  shared_parameters,
  groups,
  compression,
  communication_hook,  // with exact sums
  int8,                // hooks that round: ranks are only compared with each other
  power_sgd,
  two_optimizers,
  set_optimizer,      // one more optimizer on some ranks
  optimizer_per_set,  // the ranks are divided; each part has its own optimizer
  shared_memory,      // for gradients
  token,              // reduce() and step() of its result; without LibTorch only
  sharded,            // shards the state or also gradients, by the seed
  loss_scale,         // GradScaler, or LossScale without LibTorch; some gradients overflow
  // backward, with LibTorch only
  no_sync,           // guards in place of backward_passes_per_step; needs accumulation
  every_pass,        // each pass is reduced; needs accumulation
  set_to_none,       // gradients are undefined before a step, and may remain so
  module_gradients,  // DistributedGradients with a plain optimizer
  checkpointed,      // parameters are used in nested `checkpointed`, as deep as each rank likes
  replaced,          // parameters are replaced between steps, with their momentum
  unfrozen,          // all parameters are frozen while the optimizer is made
  expanded,       // unused parameters may have a gradient of zeros that has one element in memory
  jit,            // the module is a torch::jit::Module
  fully_sharded,  // FullySharded, with units of one or two parameters
  // helpers
  metrics,
  schedule,
  plateau,
  checkpoints,
  rollback,     // to an older checkpoint
  resume,       // from the latest checkpoint, in a new session
  fewer_ranks,  // resume on fewer ranks
  more_ranks,   // resume on more ranks
  reopened,     // the session is closed and opened again between epochs
  two_inits,    // two threads open the session
  kept_future,  // futures outlive their session
  // trouble
  forward_exception,
  hook_exception,  // in a hook of backward, with LibTorch only
  callback_exception,
  pending_future,  // an exception destroys a pending future and is caught in a caller
  mismatch,        // one rank submits a different operation
  wrong_argument,  // one rank makes a call that is refused
  fork,
  stopped,     // a rank's process stops for a while
  many_names,  // thousands of operations with distinct names
  set_churn,   // process sets come and go
  threads,     // other threads submit operations during training
  departure,   // a rank leaves its session
  killed,      // a rank is killed at the end; with --kill only
  // settings
  long_names,     // names of 10 kB
  locales,        // odd ranks write numbers as in German
  record_signal,  // a signal writes flight records
  over_mpi,
  hosts_of_one,
  hosts_of_two,
  polled,
  stall_shutdown,
  no_replay,
  small_cache,
  no_fusion,
};

inline constexpr std::array<std::string_view, 65> feature_names{
    "uneven",
    "sampler",
    "accumulation",
    "clipping",
    "skipped_steps",
    "unused",
    "frozen",
    "shared",
    "groups",
    "compression",
    "communication_hook",
    "int8",
    "power_sgd",
    "two_optimizers",
    "set_optimizer",
    "per_set",
    "shared_memory",
    "token",
    "sharded",
    "loss_scale",
    "no_sync",
    "every_pass",
    "set_to_none",
    "module_gradients",
    "checkpointed",
    "replaced",
    "unfrozen",
    "expanded",
    "jit",
    "fully_sharded",
    "metrics",
    "schedule",
    "plateau",
    "checkpoints",
    "rollback",
    "resume",
    "fewer_ranks",
    "more_ranks",
    "reopened",
    "two_inits",
    "kept_future",
    "forward_exception",
    "hook_exception",
    "callback_exception",
    "pending_future",
    "mismatch",
    "wrong_argument",
    "fork",
    "stopped",
    "many_names",
    "set_churn",
    "threads",
    "departure",
    "killed",
    "long_names",
    "locales",
    "record_signal",
    "over_mpi",
    "hosts_of_one",
    "hosts_of_two",
    "polled",
    "stall_shutdown",
    "no_replay",
    "small_cache",
    "no_fusion",
};
static_assert(static_cast<std::size_t>(Feature::no_fusion) + 1 == feature_names.size());

/// A set of features.
class Features {
 public:
  [[nodiscard]] bool has(Feature feature) const { return bits_[index(feature)]; }
  void add(Feature feature) { bits_[index(feature)] = true; }
  void remove(Feature feature) { bits_[index(feature)] = false; }
  [[nodiscard]] std::size_t size() const { return bits_.count(); }

 private:
  static std::size_t index(Feature feature) { return static_cast<std::size_t>(feature); }
  std::bitset<feature_names.size()> bits_;
};

/// The names, separated by commas. Throws std::invalid_argument for an unknown name.
[[nodiscard]] std::string to_string(const Features& features);
[[nodiscard]] Features features_of(const std::string& names);

}  // namespace kolo::internal::journeys
