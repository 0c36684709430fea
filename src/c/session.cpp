// SPDX-License-Identifier: Apache-2.0
// Implements kolo/c/session.h and kolo/c/process_set.h.
#include "kolo/session.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "c/boundary.hpp"
#include "c/handles.hpp"
#include "kolo/c/process_set.h"
#include "kolo/c/session.h"
#include "kolo/version.hpp"

namespace kolo::internal::c {
namespace {

/// Sets `*result` to what `value` returns.
template <typename T, typename Value>
kolo_status answer(T* result, const char* function, const Value& value) {
  return guarded([&] {
    T& to = not_null(result, function, "result");  // before a collective begins
    to = static_cast<T>(value());
  });
}

SessionOptions session_options(const kolo_setting* settings, std::size_t count) {
  require_array(settings, count, "kolo_init", "settings");
  SessionOptions options;
  for (std::size_t i = 0; i < count; ++i)
    options.by_name.insert_or_assign(&not_null(settings[i].name, "kolo_init", "name"),
                                     &not_null(settings[i].value, "kolo_init", "value"));
  return options;
}

}  // namespace

extern "C" {

KOLO_C_EXPORT kolo_status kolo_init(int argc, char** argv, const kolo_setting* settings,
                                    size_t count) {
  return guarded([&] { kolo::init(argc, argv, session_options(settings, count)); });
}

KOLO_C_EXPORT kolo_status kolo_shutdown() {
  return guarded([] {
    ObjectFunction::require_none("kolo_shutdown");
    kolo::shutdown();
  });
}

KOLO_C_EXPORT int kolo_initialized() { return kolo::initialized() ? 1 : 0; }

KOLO_C_EXPORT kolo_status kolo_rank(int* rank) { return answer(rank, __func__, kolo::rank); }
KOLO_C_EXPORT kolo_status kolo_size(int* size) { return answer(size, __func__, kolo::size); }
KOLO_C_EXPORT kolo_status kolo_local_rank(int* rank) {
  return answer(rank, __func__, kolo::local_rank);
}
KOLO_C_EXPORT kolo_status kolo_local_size(int* size) {
  return answer(size, __func__, kolo::local_size);
}
KOLO_C_EXPORT kolo_status kolo_cross_rank(int* rank) {
  return answer(rank, __func__, kolo::cross_rank);
}
KOLO_C_EXPORT kolo_status kolo_cross_size(int* size) {
  return answer(size, __func__, kolo::cross_size);
}
KOLO_C_EXPORT kolo_status kolo_homogeneous(int* homogeneous) {
  return answer(homogeneous, __func__, kolo::homogeneous);
}

KOLO_C_EXPORT kolo_status kolo_cpu_operations(char* text, size_t capacity, size_t* length) {
  return guarded(
      [&] { copy_text(kolo::cpu_operations(), text, capacity, length, "kolo_cpu_operations"); });
}

KOLO_C_EXPORT kolo_status kolo_stop_requested(int* stops) {
  return answer(stops, __func__, kolo::stop_requested);
}

KOLO_C_EXPORT void kolo_request_stop() { kolo::request_stop(); }

KOLO_C_EXPORT const char* kolo_version() { return kolo::version.data(); }

KOLO_C_EXPORT kolo_status kolo_process_set_add(const int* ranks, size_t count,
                                               kolo_process_set** set) {
  return guarded([&] {
    kolo_process_set*& handle = not_null(set, "kolo_process_set_add", "set");
    require_array(ranks, count, "kolo_process_set_add", "ranks");
    handle = Handles<kolo_process_set>::all().add(add_process_set(std::span(ranks, count)));
  });
}

KOLO_C_EXPORT kolo_status kolo_process_set_remove(kolo_process_set* set) {
  return guarded([&] { remove_process_set(set_of(set, "kolo_process_set_remove")); });
}

KOLO_C_EXPORT kolo_status kolo_process_set_free(kolo_process_set* set) {
  return guarded([&] { free_handle(set, "kolo_process_set_free"); });
}

KOLO_C_EXPORT kolo_status kolo_process_set_id(const kolo_process_set* set, int64_t* id) {
  return answer(id, __func__, [&] {
    const ProcessSet found = set_of(set, "kolo_process_set_id");
    static_cast<void>(found.size());  // outside of a session there is none
    return found.id();
  });
}

KOLO_C_EXPORT kolo_status kolo_process_set_size(const kolo_process_set* set, int* size) {
  return answer(size, __func__, [&] { return set_of(set, "kolo_process_set_size").size(); });
}

KOLO_C_EXPORT kolo_status kolo_process_set_rank(const kolo_process_set* set, int* rank) {
  return answer(rank, __func__, [&] { return set_of(set, "kolo_process_set_rank").rank(); });
}

KOLO_C_EXPORT kolo_status kolo_process_set_ranks(const kolo_process_set* set, int* ranks,
                                                 size_t capacity) {
  return guarded([&] {
    const char* const function = "kolo_process_set_ranks";
    require_room(ranks, capacity, function, "ranks");
    const std::vector<int> members = set_of(set, function).ranks();
    if (members.size() > capacity)
      throw InvalidArgument(fmt::format("{}: the set has {} members, and there is room for {}",
                                        function, members.size(), capacity));
    std::ranges::copy(members, ranks);
  });
}

}  // extern "C"

}  // namespace kolo::internal::c
