// SPDX-License-Identifier: Apache-2.0
// Implements kolo/c/elastic.h.
#include "kolo/elastic.hpp"

#include <fmt/format.h>

#include <cstddef>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "c/boundary.hpp"
#include "c/convert.hpp"
#include "c/optimizer.hpp"
#include "kolo/c/elastic.h"
#include "kolo/state_handler.hpp"

namespace kolo::internal::c {

template <>
struct Kind<kolo_elastic_state> {
  using Object = elastic::State;
  static constexpr std::uint64_t number = 7;
  static constexpr const char* name = "elastic state";
};

namespace {

/// Calls a function of the program. What has failed in it goes on as an exception, by which the
/// session ends or continues.
template <typename Function, typename... Arguments>
void call_program(const char* what, Function function, Arguments... arguments) {
  const kolo_status status = function(arguments...);
  if (status != KOLO_OK) throw_status(status, what);
}

/// An object that two functions of the program save and load.
class ProgramHandler : public elastic::StateHandler {
 public:
  ProgramHandler(kolo_elastic_save saver, kolo_elastic_load loader, void* user)
      : save_(saver), load_(loader), user_(user) {}

  void save(StateDict& state) override {
    const ObjectFunction running;
    const std::size_t needed = checked(save_(nullptr, 0, user_));
    std::string bytes(needed, '\0');
    if (needed > 0 && checked(save_(bytes.data(), needed, user_)) != needed)
      throw Error("an object of the program needs another number of bytes in each call that saves");
    state.set_text(std::move(bytes));
  }
  void load(const StateDict& state) override {
    const ObjectFunction running;
    const std::string& bytes = state.text();
    call_program("the function that loads an object", load_, bytes.data(), bytes.size(), user_);
  }

 private:
  static std::size_t checked(std::size_t bytes) {
    if (bytes == std::numeric_limits<std::size_t>::max())
      throw Error("an object of the program cannot be saved: its function returned SIZE_MAX");
    return bytes;
  }

  kolo_elastic_save save_;
  kolo_elastic_load load_;
  void* user_;
};

/// An optimizer, which has no state of its own.
class OptimizerHandler : public elastic::StateHandler {
 public:
  explicit OptimizerHandler(std::shared_ptr<Handles<kolo_optimizer>::Entry> optimizer)
      : optimizer_(std::move(optimizer)) {}

  void save(StateDict& /*state*/) override {}
  void load(const StateDict& /*state*/) override {}
  void rejoin() override {
    const Use<kolo_optimizer> use(optimizer_, "kolo_elastic_sync");
    use->rejoin();
  }

 private:
  std::shared_ptr<Handles<kolo_optimizer>::Entry> optimizer_;
};

/// Runs `call` with a state.
template <typename Call>
kolo_status with_state(kolo_elastic_state* state, const char* function, const Call& call) {
  return guarded([&] {
    ObjectFunction::require_none(function);
    const Use use(state, function);
    call(*use);
  });
}

}  // namespace

extern "C" {

KOLO_C_EXPORT kolo_status kolo_elastic_create(kolo_elastic_state** state) {
  const char* const function = __func__;
  return guarded([&] {
    not_null(state, function, "state") = Handles<kolo_elastic_state>::all().add(elastic::State());
  });
}

KOLO_C_EXPORT kolo_status kolo_elastic_free(kolo_elastic_state* state) {
  return guarded([&] { free_handle(state, "kolo_elastic_free"); });
}

KOLO_C_EXPORT kolo_status kolo_elastic_add_tensors(kolo_elastic_state* state, const char* name,
                                                   const kolo_named_tensor* tensors, size_t count) {
  const char* const function = __func__;
  return with_state(state, function, [&](elastic::State& object) {
    object.add(text_of(name, function, "name"),
               named_tensors_of(tensors, count, function, "tensors"));
  });
}

KOLO_C_EXPORT kolo_status kolo_elastic_add_bytes(kolo_elastic_state* state, const char* name,
                                                 void* memory, size_t bytes) {
  const char* const function = __func__;
  return with_state(state, function, [&](elastic::State& object) {
    require_array(static_cast<const char*>(memory), bytes, function, "memory");
    object.add(text_of(name, function, "name"),
               TensorView(memory, Shape{static_cast<std::int64_t>(bytes)}, DType::u8));
  });
}

KOLO_C_EXPORT kolo_status kolo_elastic_add_optimizer(kolo_elastic_state* state, const char* name,
                                                     kolo_optimizer* optimizer) {
  const char* const function = __func__;
  return with_state(state, function, [&](elastic::State& object) {
    object.add_handler(text_of(name, function, "name"),
                       std::make_unique<OptimizerHandler>(
                           Handles<kolo_optimizer>::all().find(optimizer, function)));
  });
}

KOLO_C_EXPORT kolo_status kolo_elastic_add_object(kolo_elastic_state* state, const char* name,
                                                  kolo_elastic_save save, kolo_elastic_load load,
                                                  void* user) {
  const char* const function = __func__;
  return with_state(state, function, [&](elastic::State& object) {
    if (save == nullptr) refuse_null(function, "save");
    if (load == nullptr) refuse_null(function, "load");
    object.add_handler(text_of(name, function, "name"),
                       std::make_unique<ProgramHandler>(save, load, user));
  });
}

KOLO_C_EXPORT kolo_status kolo_elastic_on_reset(kolo_elastic_state* state,
                                                kolo_elastic_function call, void* user) {
  const char* const function = __func__;
  return with_state(state, function, [&](elastic::State& object) {
    if (call == nullptr) refuse_null(function, "call");
    object.on_reset([=] { call_program("the function of kolo_elastic_on_reset", call, user); });
  });
}

KOLO_C_EXPORT kolo_status kolo_elastic_commit(kolo_elastic_state* state) {
  return with_state(state, __func__, [](elastic::State& object) { object.commit(); });
}

KOLO_C_EXPORT kolo_status kolo_elastic_check_membership(kolo_elastic_state* state) {
  return with_state(state, __func__, [](elastic::State& object) { object.check_membership(); });
}

KOLO_C_EXPORT kolo_status kolo_elastic_restore(kolo_elastic_state* state) {
  return with_state(state, __func__, [](elastic::State& object) { object.restore(); });
}

KOLO_C_EXPORT kolo_status kolo_elastic_sync(kolo_elastic_state* state) {
  return with_state(state, __func__, [](elastic::State& object) { object.sync(); });
}

KOLO_C_EXPORT kolo_status kolo_elastic_commits(kolo_elastic_state* state, uint64_t* commits) {
  const char* const function = __func__;
  return with_state(state, function, [&](const elastic::State& object) {
    not_null(commits, function, "commits") = object.commits();
  });
}

KOLO_C_EXPORT kolo_status kolo_elastic_run(kolo_elastic_state* state, kolo_elastic_function train,
                                           void* user) {
  const char* const function = __func__;
  return guarded([&] {
    if (train == nullptr) refuse_null(function, "train");
    ObjectFunction::require_none(function);
    // Not in use for the whole time, because `train` commits the state.
    const auto entry = Handles<kolo_elastic_state>::all().find(state, function);
    elastic::run(entry->object,
                 [&] { call_program("the function of kolo_elastic_run", train, user); });
  });
}

KOLO_C_EXPORT int kolo_is_elastic() { return elastic::is_elastic() ? 1 : 0; }

}  // extern "C"

}  // namespace kolo::internal::c
