// SPDX-License-Identifier: Apache-2.0
// States of programs in C: tensors and texts by name.
#pragma once

#include <cstddef>

#include "c/convert.hpp"
#include "c/handles.hpp"
#include "kolo/c/checkpoint.h"
#include "kolo/state_dict.hpp"

namespace kolo::internal::c {

template <>
struct Kind<kolo_state> {
  using Object = StateView;
  static constexpr std::uint64_t number = 6;
  static constexpr const char* name = "state";
};

/// Throws InvalidArgument for a repeated name, as `texts_of`.
[[nodiscard]] ConstTensorViews views_of(const kolo_named_tensor* tensors, std::size_t count,
                                        const char* function, const char* argument);
[[nodiscard]] Metadata texts_of(const kolo_text* texts, std::size_t count, const char* function);

}  // namespace kolo::internal::c
