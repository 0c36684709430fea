// SPDX-License-Identifier: Apache-2.0
// The state of communication hooks, as it comes from checkpoints.
#include "training/hooks/bucket_memory.hpp"

#include <array>
#include <limits>
#include <memory>

#include "kolo/communication_hook.hpp"
#include "kolo/error.hpp"
#include "target.hpp"

namespace kolo::internal::fuzz {
namespace {

using Hook = std::shared_ptr<CommunicationHook>;

/// The states of a hook in a checkpoint.
struct HookState {
  StateDict state;
  StateDict per_rank;

  friend bool operator==(const HookState&, const HookState&) = default;
};

HookState states_of(const Hook& hook) { return {hook->state(), hook->per_rank_state()}; }

/// After a hook has loaded a state, its own state is the same; one that it refuses changes nothing.
template <typename Make, typename Load>
bool loads(Make make, Load load) {
  const Hook first = make();
  const HookState before = states_of(first);
  try {
    load(*first);
  } catch (const InvalidArgument&) {
    require(states_of(first) == before, "a state that was refused changed something");
    return false;
  }
  const HookState loaded = states_of(first);
  const Hook second = make();
  second->load_state(loaded.state);
  second->load_per_rank_state(loaded.per_rank);
  require(states_of(second) == loaded, "a state is another one when it is loaded again");
  return true;
}

internal::BucketVectors sample_vectors() {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  return {{"weight", {0.5F, -1.25F, 1e-40F}}, {"group 0", {infinity, -0.0F}}, {"", {}}};
}

/// With a state already.
Hook make_int8() {
  const Hook hook = int8();
  hook->load_per_rank_state(internal::state_of("kolo.int8.1", {{"weight", {1.0F}}}));
  return hook;
}
Hook make_power_sgd() {
  const Hook hook = power_sgd();
  hook->load_state(internal::state_of("kolo.power_sgd.rights.1", {{"weight", {1.0F}}}));
  hook->load_per_rank_state(internal::state_of("kolo.power_sgd.errors.1", {{"bias", {2.0F}}}));
  return hook;
}

bool run(Bytes bytes) {
  StateDict state;
  try {
    if (!bytes.empty()) state = from_safetensors(as_text(bytes));
  } catch (const InvalidArgument&) {
    return false;
  }
  const auto own = [&](CommunicationHook& hook) { hook.load_per_rank_state(state); };
  const auto shared = [&](CommunicationHook& hook) { hook.load_state(state); };
  const std::array accepted{loads(make_int8, own), loads(make_int8, shared),
                            loads(make_power_sgd, own), loads(make_power_sgd, shared)};
  int by = 0;
  for (const bool one : accepted) by += one ? 1 : 0;
  require(by <= 1, "a state is that of two hooks");
  return by == 1;
}

std::vector<Seed> seeds() {
  const internal::BucketVectors vectors = sample_vectors();
  const auto bytes_of = [](const char* kind, const internal::BucketVectors& of) {
    return to_safetensors(internal::state_of(kind, of));
  };
  return {{"int8", bytes_of("kolo.int8.1", vectors)},
          {"nothing", bytes_of("kolo.int8.1", {})},
          {"rights", bytes_of("kolo.power_sgd.rights.1", vectors)},
          {"errors", bytes_of("kolo.power_sgd.errors.1", vectors)},
          {"shared_of_int8", ""}};
}

}  // namespace

const Target hook_state_target{.name = "hook_state", .max_bytes = 512, .run = run, .seeds = seeds};

}  // namespace kolo::internal::fuzz
