// SPDX-License-Identifier: Apache-2.0
// The state of communication hooks as bytes: vectors of f32 by the name of their bucket.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace kolo::internal {

using BucketVectors = std::map<std::string, std::vector<float>>;

/// `kind` names the hook and the format's version: "kolo.int8.1".
[[nodiscard]] std::string encode(const std::string& kind, const BucketVectors& vectors);

/// Throws InvalidArgument, naming `kind`, for anything but what `encode` returned for it.
[[nodiscard]] BucketVectors decode_vectors(const std::string& kind, const std::string& bytes);

}  // namespace kolo::internal
