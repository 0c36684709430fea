// SPDX-License-Identifier: Apache-2.0
// The spelling of values and names in messages to users.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/descriptor.hpp"
#include "kolo/export.hpp"  // kolo::torch, another library, uses the marked functions

namespace kolo::internal {

[[nodiscard]] KOLO_EXPORT std::string to_string(const Shape& shape);  // "[64, 3]", "[*, 3]"
[[nodiscard]] KOLO_EXPORT std::string_view to_string(DType dtype);    // "f32"
[[nodiscard]] std::string_view to_string(OperationType type);
[[nodiscard]] KOLO_EXPORT std::string_view to_string(ReduceOp op);
[[nodiscard]] KOLO_EXPORT std::string_view to_string(Compression compression);
[[nodiscard]] std::string_view to_string(AverageOver over);
[[nodiscard]] std::string to_string(Device device);  // "cpu", "cuda:1", "cuda"

/// The descriptor in full: "allreduce average f32 [64, 3]". Defaults are left out.
[[nodiscard]] std::string to_string(const Descriptor& descriptor);

/// The name in `names` that is most similar to `wanted`, so that one of the two is probably a
/// misspelling of the other; "" if no name is similar enough.
[[nodiscard]] std::string nearest_name(const std::string& wanted,
                                       std::span<const std::string> names);

}  // namespace kolo::internal
