// SPDX-License-Identifier: Apache-2.0
#include "training/hooks/hook_state.hpp"

#include <fmt/format.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kolo/error.hpp"
#include "training/bytes.hpp"
#include "training/checkpoint/checkpoint_payload.hpp"

namespace kolo::internal {
namespace {

constexpr const char* kind_name = "kind";
// Before the name of a bucket, so that it is not that of the kind.
constexpr const char* bucket_prefix = "bucket ";

std::string little_endian(const std::vector<float>& vector) {
  std::string bytes;
  bytes.reserve(vector.size() * sizeof(float));
  for (const float element : vector)
    append_little_endian(bytes, std::bit_cast<std::uint32_t>(element));
  return bytes;
}

std::vector<float> floats_of(std::string_view bytes) {
  std::vector<float> vector;
  vector.reserve(bytes.size() / sizeof(float));
  for (std::size_t i = 0; i + sizeof(float) <= bytes.size(); i += sizeof(float))
    vector.push_back(std::bit_cast<float>(from_little_endian<std::uint32_t>(bytes.substr(i))));
  return vector;
}

}  // namespace

std::string encode(const std::string& kind, const BucketVectors& vectors) {
  Blobs blobs{{kind_name, kind}};
  for (const auto& [name, vector] : vectors)
    blobs.emplace(bucket_prefix + name, little_endian(vector));
  return encode(blobs);
}

BucketVectors decode_vectors(const std::string& kind, const std::string& bytes) {
  const auto refuse = [&](const std::string& reason) {
    throw InvalidArgument(
        fmt::format("these bytes are not the state of a hook ({}): {}", kind, reason));
  };
  Blobs parts;
  try {
    parts = decode_parts(bytes);
  } catch (const InvalidArgument&) {
    refuse("they are damaged, or something else");
  }
  const auto found = parts.find(kind_name);
  if (found == parts.end() || found->second != kind)
    refuse(found == parts.end() ? "they do not name a hook" : "they are of " + found->second);
  BucketVectors vectors;
  const std::string_view prefix = bucket_prefix;
  for (const auto& [name, blob] : parts) {
    if (name == kind_name) continue;
    if (!name.starts_with(prefix) || blob.size() % sizeof(float) != 0)
      refuse("the part '" + name + "' is damaged");
    vectors.emplace(name.substr(prefix.size()), floats_of(blob));
  }
  return vectors;
}

}  // namespace kolo::internal
