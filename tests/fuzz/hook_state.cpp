// SPDX-License-Identifier: Apache-2.0
// The state of communication hooks, as checkpoints contain it.
#include "training/hooks/hook_state.hpp"

#include <array>
#include <limits>
#include <memory>

#include "kolo/communication_hook.hpp"
#include "kolo/error.hpp"
#include "target.hpp"

namespace kolo::internal::fuzz {
namespace {

using Hook = std::shared_ptr<CommunicationHook>;

/// A hook's state in checkpoints.
struct HookState {
  std::string shared;
  std::string own;

  friend bool operator==(const HookState&, const HookState&) = default;
};

HookState state_of(const Hook& hook) { return {hook->shared_state(), hook->own_state()}; }

/// After a hook has loaded a state, its own state is the same; one that it refuses changes nothing.
template <typename Make, typename Load>
bool loads(Make make, Load load) {
  const Hook first = make();
  const HookState before = state_of(first);
  try {
    load(*first);
  } catch (const InvalidArgument&) {
    require(state_of(first) == before, "a state that was refused changed something");
    return false;
  }
  const HookState loaded = state_of(first);
  const Hook second = make();
  second->load_shared_state(loaded.shared);
  second->load_own_state(loaded.own);
  require(state_of(second) == loaded, "a state is another one when it is loaded again");
  return true;
}

internal::UnitVectors sample_vectors() {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  return {{"weight", {0.5F, -1.25F, 1e-40F}}, {"group 0", {infinity, -0.0F}}, {"", {}}};
}

/// With a state already.
Hook make_int8() {
  const Hook hook = int8();
  hook->load_own_state(internal::encode("kolo.int8.1", {{"weight", {1.0F}}}));
  return hook;
}
Hook make_power_sgd() {
  const Hook hook = power_sgd();
  hook->load_shared_state(internal::encode("kolo.power_sgd.rights.1", {{"weight", {1.0F}}}));
  hook->load_own_state(internal::encode("kolo.power_sgd.errors.1", {{"bias", {2.0F}}}));
  return hook;
}

bool run(Bytes bytes) {
  const std::string text(as_text(bytes));
  const auto own = [&](CommunicationHook& hook) { hook.load_own_state(text); };
  const auto shared = [&](CommunicationHook& hook) { hook.load_shared_state(text); };
  const std::array accepted{loads(make_int8, own), loads(make_int8, shared),
                            loads(make_power_sgd, own), loads(make_power_sgd, shared)};
  int by = 0;
  for (const bool one : accepted) by += one ? 1 : 0;
  require(by <= 1, "a state is that of two hooks");
  return by == 1;
}

std::vector<Seed> seeds() {
  const internal::UnitVectors vectors = sample_vectors();
  return {{"int8", internal::encode("kolo.int8.1", vectors)},
          {"nothing", internal::encode("kolo.int8.1", {})},
          {"rights", internal::encode("kolo.power_sgd.rights.1", vectors)},
          {"errors", internal::encode("kolo.power_sgd.errors.1", vectors)},
          {"shared_of_int8", ""}};
}

}  // namespace

const Target hook_state_target{.name = "hook_state", .max_bytes = 256, .run = run, .seeds = seeds};

}  // namespace kolo::internal::fuzz
