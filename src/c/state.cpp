// SPDX-License-Identifier: Apache-2.0
// Implements the states and safetensors files of kolo/c/checkpoint.h.
#include "c/state.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "c/boundary.hpp"
#include "kolo/training/checkpoint.hpp"

namespace kolo::internal::c {
namespace {

using Source = std::pair<const std::string, TensorSource>;

[[noreturn]] void refuse_repeated(const char* function, const std::string& name) {
  throw InvalidArgument(fmt::format("{}: the name '{}' is repeated", function, name), name);
}

/// The tensor with this index, in the order of names.
const Source& source_of(const StateView& state, std::size_t index, const char* function) {
  if (index >= state.tensors.size())
    throw InvalidArgument(
        fmt::format("{}: tensor {} of {}", function, index, state.tensors.size()));
  return *std::next(state.tensors.begin(), static_cast<std::ptrdiff_t>(index));
}

SafetensorsOptions load_options(const kolo_load_options* given, const char* function) {
  static constexpr kolo_load_options defaults = KOLO_LOAD_OPTIONS;
  const kolo_load_options all = options_of(given, defaults, function);
  return {.strict = all.allow_unmatched == 0,
          .prefix = optional_text(all.prefix, function, "prefix")};
}

}  // namespace

ConstTensorViews views_of(const kolo_named_tensor* tensors, std::size_t count, const char* function,
                          const char* argument) {
  ConstTensorViews views;
  for (const auto& [name, tensor] : named_tensors_of(tensors, count, function, argument))
    if (!views.emplace(name, tensor).second) refuse_repeated(function, name);
  return views;
}

Metadata texts_of(const kolo_text* texts, std::size_t count, const char* function) {
  require_array(texts, count, function, "texts");
  Metadata metadata;
  for (std::size_t i = 0; i < count; ++i) {
    const std::string name = text_of(texts[i].name, function, "name");
    if (!metadata.emplace(name, text_of(texts[i].value, function, "value")).second)
      refuse_repeated(function, name);
  }
  return metadata;
}

extern "C" {

KOLO_C_EXPORT kolo_status kolo_state_load(kolo_state* state, const kolo_named_tensor* tensors,
                                          size_t count, const kolo_load_options* options,
                                          size_t* unmatched) {
  const char* const function = __func__;
  return guarded([&] {
    const SafetensorsOptions given = load_options(options, function);
    TensorViews into;
    for (const auto& [name, tensor] : named_tensors_of(tensors, count, function, "tensors"))
      if (!into.emplace(name, tensor).second) refuse_repeated(function, name);
    const UnmatchedNames names = load_state(into, *Use(state, function), given);
    if (unmatched != nullptr) *unmatched = names.missing.size() + names.unexpected.size();
  });
}

KOLO_C_EXPORT kolo_status kolo_state_tensors(kolo_state* state, size_t* count) {
  const char* const function = __func__;
  return guarded([&] {
    size_t& result = not_null(count, function, "count");
    result = Use(state, function)->tensors.size();
  });
}

KOLO_C_EXPORT kolo_status kolo_state_tensor_name(kolo_state* state, size_t index, char* text,
                                                 size_t capacity, size_t* length) {
  const char* const function = __func__;
  return guarded([&] {
    const Use use(state, function);
    copy_text(source_of(*use, index, function).first, text, capacity, length, function);
  });
}

KOLO_C_EXPORT kolo_status kolo_state_tensor_shape(kolo_state* state, size_t index,
                                                  kolo_dtype* dtype, int32_t* dimensions,
                                                  int64_t* shape, size_t capacity) {
  const char* const function = __func__;
  return guarded([&] {
    require_room(shape, capacity, function, "shape");
    kolo_dtype& type = not_null(dtype, function, "dtype");
    int32_t& number = not_null(dimensions, function, "dimensions");
    const Use use(state, function);
    const auto& [name, source] = source_of(*use, index, function);
    const auto lengths = source.shape.lengths();
    if (lengths.size() > capacity)
      throw InvalidArgument(fmt::format("{}: '{}' has {} dimensions, and there is room for {}",
                                        function, name, lengths.size(), capacity),
                            name);
    type = static_cast<kolo_dtype>(source.dtype);
    number = static_cast<int32_t>(lengths.size());
    std::ranges::copy(lengths, shape);
  });
}

KOLO_C_EXPORT kolo_status kolo_state_text(kolo_state* state, const char* name, char* text,
                                          size_t capacity, size_t* length) {
  const char* const function = __func__;
  return guarded([&] {
    const std::string wanted = text_of(name, function, "name");
    const Use use(state, function);
    const auto found = use->metadata.find(wanted);
    if (found == use->metadata.end())
      throw InvalidArgument(fmt::format("{}: there is no text '{}'", function, wanted));
    copy_text(found->second, text, capacity, length, function);
  });
}

KOLO_C_EXPORT kolo_status kolo_state_free(kolo_state* state) {
  return guarded([&] { free_handle(state, "kolo_state_free"); });
}

KOLO_C_EXPORT kolo_status kolo_load_safetensors(const char* path, kolo_state** state) {
  const char* const function = __func__;
  return guarded([&] {
    kolo_state*& handle = not_null(state, function, "state");
    handle = Handles<kolo_state>::all().add(
        StateView(load_safetensors(&not_null(path, function, "path"))));
  });
}

KOLO_C_EXPORT kolo_status kolo_save_safetensors(const char* path, const kolo_named_tensor* tensors,
                                                size_t count, const kolo_text* texts,
                                                size_t text_count) {
  const char* const function = __func__;
  return guarded([&] {
    save_safetensors(&not_null(path, function, "path"),
                     views_of(tensors, count, function, "tensors"),
                     texts_of(texts, text_count, function));
  });
}

}  // extern "C"

}  // namespace kolo::internal::c
