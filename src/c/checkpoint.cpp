// SPDX-License-Identifier: Apache-2.0
// Implements the checkpoints of kolo/c/checkpoint.h.
#include "kolo/c/checkpoint.h"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>

#include "c/boundary.hpp"
#include "c/state.hpp"
#include "kolo/training/checkpoint.hpp"
#include "training/checkpoint/deferred_save.hpp"

namespace kolo::internal::c {

template <>
struct Kind<kolo_checkpointer> {
  using Object = Checkpointer;
  static constexpr std::uint64_t number = 4;
  static constexpr const char* name = "checkpointer";
};
template <>
struct Kind<kolo_checkpoint> {
  using Object = Checkpoint;
  static constexpr std::uint64_t number = 5;
  static constexpr const char* name = "checkpoint";
};

namespace {

NamedViews parts_of(const kolo_part* parts, std::size_t count, const char* function,
                    const char* argument) {
  require_array(parts, count, function, argument);
  NamedViews views;
  for (std::size_t i = 0; i < count; ++i) {
    const kolo_part& part = parts[i];
    const std::string name = text_of(part.name, function, "name");
    StateView view(views_of(part.tensors, part.tensor_count, function, "tensors"),
                   texts_of(part.texts, part.text_count, function));
    if (!views.emplace(name, std::move(view)).second)
      throw InvalidArgument(
          fmt::format("{}: two of `{}` are named '{}'", function, argument, name));
  }
  return views;
}

kolo_save_options save_options_of(const kolo_save_options* given, const char* function) {
  static constexpr kolo_save_options defaults = KOLO_SAVE_OPTIONS;
  return options_of(given, defaults, function);
}

/// Makes the contents of a checkpoint within the collective call, so that what is wrong on one rank
/// is an error on all.
DeferredSave::Contents contents_of(const kolo_part* parts, size_t count,
                                   const kolo_save_options& options, const char* function) {
  return [=] {
    CheckpointExtras extras;
    if (options.has_metric != 0) extras.metric = options.metric;
    extras.per_rank = parts_of(options.per_rank, options.per_rank_count, function, "per_rank");
    return std::pair(parts_of(parts, count, function, "parts"), std::move(extras));
  };
}

/// Gives a handle of what `load` finds, or null.
template <typename Load>
kolo_status give_found(kolo_checkpointer* checkpointer, kolo_checkpoint** checkpoint,
                       const char* function, const Load& load) {
  return guarded([&] {
    kolo_checkpoint*& handle = not_null(checkpoint, function, "checkpoint");
    std::optional<Checkpoint> found = load(*Use(checkpointer, function));
    handle = found ? Handles<kolo_checkpoint>::all().add(std::move(*found)) : nullptr;
  });
}

const StateView& part_of_rank(const Checkpoint& checkpoint, int rank, const std::string& name,
                              const char* function) {
  if (rank == KOLO_SHARED_PART) return checkpoint.part(name);
  const auto& all = checkpoint.of_ranks;
  if (rank < 0 || static_cast<std::size_t>(rank) >= all.size())
    throw InvalidArgument(fmt::format("{}: checkpoint '{}' is of {} ranks, and has no rank {}",
                                      function, checkpoint.path.string(), all.size(), rank));
  const NamedViews& parts = all[static_cast<std::size_t>(rank)];
  const auto found = parts.find(name);
  if (found == parts.end())
    throw CheckpointError(CheckpointFault::incomplete, checkpoint.path,
                          fmt::format("checkpoint '{}' has no part '{}' of rank {}",
                                      checkpoint.path.string(), name, rank));
  return found->second;
}

/// Sets `*result` to what `value` returns for the checkpoint.
template <typename T, typename Value>
kolo_status ask(kolo_checkpoint* checkpoint, T* result, const char* function, const char* argument,
                const Value& value) {
  return guarded([&] {
    T& to = not_null(result, function, argument);
    to = value(*Use(checkpoint, function));
  });
}

}  // namespace

extern "C" {

KOLO_C_EXPORT kolo_status kolo_checkpointer_create(const kolo_checkpointer_options* options,
                                                   kolo_checkpointer** checkpointer) {
  const char* const function = __func__;
  return guarded([&] {
    static constexpr kolo_checkpointer_options defaults = KOLO_CHECKPOINTER_OPTIONS;
    kolo_checkpointer*& handle = not_null(checkpointer, function, "checkpointer");
    const kolo_checkpointer_options given = options_of(options, defaults, function);
    CheckpointerOptions converted;
    converted.directory = &not_null(given.directory, function, "directory");
    converted.prefix = &not_null(given.prefix, function, "prefix");
    converted.keep_last = given.keep_last;
    converted.keep_best = given.keep_best != 0;
    converted.best = enumerator(given.best, Goal::maximum, function, "goal");
    handle = Handles<kolo_checkpointer>::all().add(Checkpointer(std::move(converted)));
  });
}

KOLO_C_EXPORT kolo_status kolo_checkpointer_free(kolo_checkpointer* checkpointer) {
  return guarded([&] { free_handle(checkpointer, "kolo_checkpointer_free"); });
}

KOLO_C_EXPORT kolo_status kolo_checkpointer_save(kolo_checkpointer* checkpointer, int64_t step,
                                                 const kolo_part* parts, size_t count,
                                                 const kolo_save_options* options) {
  const char* const function = __func__;
  return guarded([&] {
    const kolo_save_options all = save_options_of(options, function);
    DeferredSave::save(*Use(checkpointer, function), step,
                       contents_of(parts, count, all, function));
  });
}

KOLO_C_EXPORT kolo_status kolo_checkpointer_save_async(kolo_checkpointer* checkpointer,
                                                       int64_t step, const kolo_part* parts,
                                                       size_t count,
                                                       const kolo_save_options* options,
                                                       int* saves) {
  const char* const function = __func__;
  return guarded([&] {
    const kolo_save_options all = save_options_of(options, function);
    const auto path = DeferredSave::save_async(
        *Use(checkpointer, function), step, contents_of(parts, count, all, function),
        all.refuse_if_busy != 0 ? IfBusy::refuse : IfBusy::wait);
    if (saves != nullptr) *saves = path ? 1 : 0;
  });
}

KOLO_C_EXPORT kolo_status kolo_checkpointer_wait(kolo_checkpointer* checkpointer) {
  return guarded([&] { Use(checkpointer, "kolo_checkpointer_wait")->wait(); });
}

KOLO_C_EXPORT kolo_status kolo_checkpointer_load_latest(kolo_checkpointer* checkpointer,
                                                        kolo_checkpoint** checkpoint) {
  return give_found(checkpointer, checkpoint, __func__,
                    [](const Checkpointer& object) { return object.load_latest(); });
}

KOLO_C_EXPORT kolo_status kolo_checkpointer_load_best(kolo_checkpointer* checkpointer,
                                                      kolo_checkpoint** checkpoint) {
  return give_found(checkpointer, checkpoint, __func__,
                    [](const Checkpointer& object) { return object.load_best(); });
}

KOLO_C_EXPORT kolo_status kolo_checkpoint_load(const char* path, kolo_checkpoint** checkpoint) {
  const char* const function = __func__;
  return guarded([&] {
    kolo_checkpoint*& handle = not_null(checkpoint, function, "checkpoint");
    handle =
        Handles<kolo_checkpoint>::all().add(Checkpointer::load(&not_null(path, function, "path")));
  });
}

KOLO_C_EXPORT kolo_status kolo_checkpoint_free(kolo_checkpoint* checkpoint) {
  return guarded([&] { free_handle(checkpoint, "kolo_checkpoint_free"); });
}

KOLO_C_EXPORT kolo_status kolo_checkpoint_step(kolo_checkpoint* checkpoint, int64_t* step) {
  return ask(checkpoint, step, __func__, "step",
             [](const Checkpoint& object) { return object.step; });
}

KOLO_C_EXPORT kolo_status kolo_checkpoint_ranks(kolo_checkpoint* checkpoint, int* ranks) {
  return ask(checkpoint, ranks, __func__, "ranks",
             [](const Checkpoint& object) { return object.ranks; });
}

KOLO_C_EXPORT kolo_status kolo_checkpoint_metric(kolo_checkpoint* checkpoint, double* metric) {
  const char* const function = __func__;
  return ask(checkpoint, metric, function, "metric", [&](const Checkpoint& object) {
    if (!object.metric)
      throw InvalidArgument(fmt::format("{}: checkpoint '{}' was saved without a metric", function,
                                        object.path.string()));
    return *object.metric;
  });
}

KOLO_C_EXPORT kolo_status kolo_checkpoint_path(kolo_checkpoint* checkpoint, char* text,
                                               size_t capacity, size_t* length) {
  const char* const function = __func__;
  return guarded([&] {
    copy_text(Use(checkpoint, function)->path.string(), text, capacity, length, function);
  });
}

KOLO_C_EXPORT kolo_status kolo_checkpoint_part(kolo_checkpoint* checkpoint, int of_rank,
                                               const char* name, kolo_state** state) {
  const char* const function = __func__;
  return guarded([&] {
    kolo_state*& handle = not_null(state, function, "state");
    const std::string part = text_of(name, function, "name");
    const Use use(checkpoint, function);
    handle = Handles<kolo_state>::all().add(StateView(part_of_rank(*use, of_rank, part, function)));
  });
}

KOLO_C_EXPORT kolo_status kolo_merge_checkpoint(const char* from, const char* to,
                                                const char* part) {
  const char* const function = __func__;
  return guarded([&] {
    merge_checkpoint(&not_null(from, function, "from"), &not_null(to, function, "to"),
                     optional_text(part, function, "part"));
  });
}

}  // extern "C"

}  // namespace kolo::internal::c
