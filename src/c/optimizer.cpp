// SPDX-License-Identifier: Apache-2.0
// Implements kolo/c/optimizer.h. A step of C++ is one call that runs the program's update; here the
// two halves are calls, with the same collectives in the same order.
#include "c/optimizer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/overlap.hpp"
#include "c/boundary.hpp"
#include "c/convert.hpp"
#include "kolo/sharded_optimizer.hpp"

namespace kolo::internal::c {
namespace {

using NamedTensors = std::vector<NamedTensor>;

std::vector<std::string> names_of(const char* const* names, std::size_t count, const char* function,
                                  const char* argument) {
  require_array(names, count, function, argument);
  std::vector<std::string> result;
  for (std::size_t i = 0; i < count; ++i) result.push_back(text_of(names[i], function, argument));
  return result;
}

DistributedOptimizerOptions converted(const kolo_optimizer_options& given, const char* function) {
  DistributedOptimizerOptions options;
  options.op = enumerator(given.op, ReduceOp::adasum, function, "operator");
  options.compression = enumerator(given.compression, Compression::bf16, function, "compression");
  options.backward_passes_per_step = given.backward_passes_per_step;
  options.accumulation =
      enumerator(given.accumulation, Accumulation::mean, function, "accumulation");
  options.gradient_predivide_factor = given.gradient_predivide_factor;
  require_array(given.groups, given.group_count, function, "groups");
  for (std::size_t i = 0; i < given.group_count; ++i)
    options.groups.push_back(
        names_of(given.groups[i].names, given.groups[i].count, function, "groups"));
  options.num_groups = given.num_groups;
  options.process_set = set_of(given.process_set, function);
  options.compare.at_start = given.compare_at_start != 0;
  options.compare.every = given.compare_every;
  options.compare.except =
      names_of(given.compare_except, given.except_count, function, "compare_except");
  return options;
}

/// The sharding of C has nothing as its first value.
std::optional<Sharding> sharding_of(kolo_sharding given, const char* function) {
  if (given == KOLO_SHARD_NOTHING) return std::nullopt;
  if (given != KOLO_SHARD_STATE && given != KOLO_SHARD_STATE_AND_GRADIENTS)
    refuse_value(function, "sharding", given);
  return given == KOLO_SHARD_STATE ? Sharding::state : Sharding::state_and_gradients;
}

/// The function that lists the parameters; null if there are none and they are not needed.
std::function<NamedTensors()> lister(const NamedTensors& parameters, bool is_needed) {
  if (parameters.empty() && !is_needed) return nullptr;
  return [parameters] { return parameters; };
}

Optimizer make(NamedTensors gradients, NamedTensors parameters,
               const DistributedOptimizerOptions& options, std::optional<Sharding> sharding) {
  auto list = lister(parameters, sharding.has_value());
  auto reducer = sharding
                     ? detail::NamedGradientReducer(gradients, options, *sharding, std::move(list))
                     : detail::NamedGradientReducer(gradients, options, std::move(list));
  return {std::move(gradients), std::move(parameters), std::move(reducer), sharding.has_value()};
}

void require_no_step(const Optimizer& optimizer, const char* function) {
  if (optimizer.is_stepping)
    throw InvalidArgument(
        fmt::format("{}: a step has begun: call kolo_optimizer_end_step, or kolo_optimizer_discard "
                    "to drop its gradients",
                    function));
}

void require_reduced(const Optimizer& optimizer, const char* function) {
  if (!optimizer.reduction)
    throw InvalidArgument(
        fmt::format("{}: no gradients are reduced: call kolo_optimizer_reduce first", function));
  optimizer.reducer.require_current(*optimizer.reduction, function);
}

void reduce(Optimizer& optimizer) {
  optimizer.reduction.reset();
  optimizer.reduction = optimizer.reducer.reduce(optimizer.gradients);
}

void begin_step(Optimizer& optimizer) {
  optimizer.reduction.reset();
  if (optimizer.is_sharded) optimizer.reducer.require_all_ranks();
  optimizer.is_stepping = true;
}

void end_step(Optimizer& optimizer) {
  optimizer.is_stepping = false;
  if (optimizer.is_sharded) optimizer.reducer.gather(optimizer.parameters);
  optimizer.reducer.end_step();
}

void discard(Optimizer& optimizer) {
  optimizer.is_stepping = false;
  optimizer.reduction.reset();
  optimizer.reducer.discard([&] { return optimizer.gradients; });
  if (!optimizer.is_sharded) return;
  optimizer.reducer.require_all_ranks();
  optimizer.reducer.gather({});
}

/// The gradient of an operation, which is named "3.weight" or "3(round 2).weight" by the number of
/// the optimizer (`GradientBuckets`). "" for operations of several gradients. Other names are those
/// that the program has given by mistake.
std::string_view gradient_of(std::string_view operation, const Optimizer& optimizer) {
  const auto is_gradient = [&](std::string_view name) {
    return std::ranges::any_of(optimizer.gradients, [&](const auto& g) { return g.name == name; });
  };
  std::string_view rest =
      operation.substr(std::min(operation.find_first_not_of("0123456789"), operation.size()));
  if (rest.size() == operation.size()) return operation;
  if (rest.starts_with("(round "))
    rest = rest.substr(std::min(rest.find(')'), rest.size() - 1) + 1);
  if (rest.starts_with('.') && is_gradient(rest.substr(1))) return rest.substr(1);
  return is_gradient(operation) ? operation : std::string_view();
}

/// Runs `call` with an optimizer. The tensor of an error gets the name that the program gave it.
template <typename Call>
kolo_status with(kolo_optimizer* optimizer, const char* function, const Call& call) {
  std::optional<std::size_t> length;
  const kolo_status status = guarded([&] {
    const Use use(optimizer, function);
    try {
      call(*use);
    } catch (const Error& error) {
      length = gradient_of(error.tensor(), *use).size();
      throw;
    }
  });
  if (length) keep_end_of_tensor(*length);
  return status;
}

/// The same, for calls that are not allowed within a step.
template <typename Call>
kolo_status between_steps(kolo_optimizer* optimizer, const char* function, const Call& call) {
  return with(optimizer, function, [&](Optimizer& object) {
    require_no_step(object, function);
    call(object);
  });
}

/// Throws InvalidArgument for tensors that share memory.
void require_apart(const std::vector<NamedTensor>& gradients,
                   const std::vector<NamedTensor>& parameters, const char* function) {
  std::vector<MemoryUse> uses;
  for (const auto* list : {&gradients, &parameters})
    for (const NamedTensor& named : *list)
      uses.push_back(MemoryUse::of(named.tensor, uses.size(), /*written=*/true));
  const Overlap both = find_overlap(std::move(uses));
  if (!both) return;
  const auto name_of = [&](std::size_t i) {
    return i < gradients.size()
               ? fmt::format("gradient '{}'", gradients[i].name)
               : fmt::format("parameter '{}'", parameters[i - gradients.size()].name);
  };
  throw InvalidArgument(fmt::format("{}: {} and {} share memory", function, name_of(both->first),
                                    name_of(both->second)));
}

}  // namespace

extern "C" {

KOLO_C_EXPORT kolo_status kolo_optimizer_create(const kolo_named_tensor* gradients, size_t count,
                                                const kolo_named_tensor* parameters,
                                                size_t parameter_count,
                                                const kolo_optimizer_options* options,
                                                kolo_optimizer** optimizer) {
  const char* const function = __func__;
  return guarded([&] {
    static constexpr kolo_optimizer_options defaults = KOLO_OPTIMIZER_OPTIONS;
    kolo_optimizer*& handle = not_null(optimizer, function, "optimizer");
    const kolo_optimizer_options all = options_of(options, defaults, function);
    const DistributedOptimizerOptions given = converted(all, function);
    const std::optional<Sharding> sharding = sharding_of(all.sharding, function);
    auto reduced = named_tensors_of(gradients, count, function, "gradients");
    auto updated = named_tensors_of(parameters, parameter_count, function, "parameters");
    require_apart(reduced, updated, function);
    handle = Handles<kolo_optimizer>::all().add(
        make(std::move(reduced), std::move(updated), given, sharding));
  });
}

KOLO_C_EXPORT kolo_status kolo_optimizer_free(kolo_optimizer* optimizer) {
  return guarded([&] { free_handle(optimizer, "kolo_optimizer_free"); });
}

KOLO_C_EXPORT kolo_status kolo_optimizer_ready(kolo_optimizer* optimizer, const char* name) {
  const char* const function = __func__;
  return between_steps(optimizer, function, [&](Optimizer& object) {
    object.reducer.ready(text_of(name, function, "name"), [&] { return object.gradients; });
  });
}

KOLO_C_EXPORT kolo_status kolo_optimizer_end_pass(kolo_optimizer* optimizer) {
  return between_steps(optimizer, __func__, [](Optimizer& object) { object.reducer.end_pass(); });
}

KOLO_C_EXPORT kolo_status kolo_optimizer_reduce(kolo_optimizer* optimizer) {
  return between_steps(optimizer, __func__, reduce);
}

KOLO_C_EXPORT kolo_status kolo_optimizer_clip_grad_norm(kolo_optimizer* optimizer, double max_norm,
                                                        double* norm) {
  const char* const function = __func__;
  return between_steps(optimizer, function, [&](Optimizer& object) {
    require_reduced(object, function);
    const double before = object.reducer.clip(object.gradients, max_norm);
    if (norm != nullptr) *norm = before;
  });
}

KOLO_C_EXPORT kolo_status kolo_optimizer_begin_step(kolo_optimizer* optimizer) {
  return between_steps(optimizer, __func__, [](Optimizer& object) {
    reduce(object);
    begin_step(object);
  });
}

KOLO_C_EXPORT kolo_status kolo_optimizer_begin_reduced_step(kolo_optimizer* optimizer) {
  const char* const function = __func__;
  return between_steps(optimizer, function, [&](Optimizer& object) {
    require_reduced(object, function);
    begin_step(object);
  });
}

KOLO_C_EXPORT kolo_status kolo_optimizer_end_step(kolo_optimizer* optimizer) {
  const char* const function = __func__;
  return with(optimizer, function, [&](Optimizer& object) {
    if (!object.is_stepping)
      throw InvalidArgument(
          fmt::format("{}: no step has begun: call kolo_optimizer_begin_step first", function));
    end_step(object);
  });
}

KOLO_C_EXPORT kolo_status kolo_optimizer_discard(kolo_optimizer* optimizer) {
  return with(optimizer, __func__, discard);
}

KOLO_C_EXPORT kolo_status kolo_optimizer_rejoin(kolo_optimizer* optimizer) {
  return with(optimizer, __func__, [](Optimizer& object) { object.rejoin(); });
}

KOLO_C_EXPORT kolo_status kolo_optimizer_shard(kolo_optimizer* optimizer, size_t parameter,
                                               int64_t* begin, int64_t* end) {
  const char* const function = __func__;
  return with(optimizer, function, [&](Optimizer& object) {
    const std::span<const Shard> shards = object.reducer.shards();
    if (parameter >= shards.size())
      throw InvalidArgument(fmt::format("{}: parameter {} of {} that are sharded", function,
                                        parameter, shards.size()));
    not_null(begin, function, "begin");
    not_null(end, function, "end") = shards[parameter].end;
    *begin = shards[parameter].begin;
  });
}

KOLO_C_EXPORT kolo_status kolo_broadcast_parameters(const kolo_named_tensor* parameters,
                                                    size_t count, int root,
                                                    kolo_process_set* process_set) {
  const char* const function = __func__;
  return guarded([&] {
    broadcast_parameters(named_tensors_of(parameters, count, function, "parameters"), root,
                         set_of(process_set, function));
  });
}

KOLO_C_EXPORT kolo_status kolo_require_equal(const kolo_named_tensor* tensors, size_t count,
                                             kolo_process_set* process_set) {
  const char* const function = __func__;
  return guarded([&] {
    require_equal(named_tensors_of(tensors, count, function, "tensors"),
                  set_of(process_set, function));
  });
}

}  // extern "C"

}  // namespace kolo::internal::c
