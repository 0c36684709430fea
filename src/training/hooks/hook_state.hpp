// SPDX-License-Identifier: Apache-2.0
// The state of communication hooks as bytes: vectors of f32 by the name of their unit.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace kolo::internal {

using UnitVectors = std::map<std::string, std::vector<float>>;

/// `kind` names the hook and the format's version: "kolo.int8.1".
[[nodiscard]] std::string encode(const std::string& kind, const UnitVectors& vectors);

/// Throws InvalidArgument, naming `kind`, for anything but what `encode` returned for it.
[[nodiscard]] UnitVectors decode_vectors(const std::string& kind, const std::string& bytes);

}  // namespace kolo::internal
