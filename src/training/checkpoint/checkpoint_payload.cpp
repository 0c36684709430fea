// SPDX-License-Identifier: Apache-2.0
#include "training/checkpoint/checkpoint_payload.hpp"

#include "kolo/error.hpp"
#include "training/bytes.hpp"

namespace kolo::internal {
namespace {

void append(std::string& bytes, const std::string& text) {
  append_little_endian<std::uint64_t>(bytes, text.size());
  bytes += text;
}

// Reserved at once: parts may be gigabytes, and growing the string would copy them repeatedly.
std::size_t encoded_size(const Blobs& parts) {
  std::size_t size = sizeof(std::uint32_t);
  for (const auto& [name, blob] : parts) {
    size += 2 * sizeof(std::uint64_t) + name.size() + blob.size();
  }
  return size;
}

void append(std::string& bytes, const Blobs& parts) {
  append_little_endian(bytes, static_cast<std::uint32_t>(parts.size()));
  for (const auto& [name, blob] : parts) {
    append(bytes, name);
    append(bytes, blob);
  }
}

class Decoder {
 public:
  explicit Decoder(std::string_view bytes) : left_(bytes) {}

  template <typename Integer>
  Integer number() {
    return from_little_endian<Integer>(take(sizeof(Integer)));
  }

  std::string text() { return std::string(take(number<std::uint64_t>())); }

  Blobs blobs() {
    Blobs blobs;
    for (auto left = number<std::uint32_t>(); left > 0; --left) {
      std::string name = text();
      blobs[std::move(name)] = text();
    }
    return blobs;
  }

  void end() const {
    if (!left_.empty()) refuse();
  }

 private:
  // Every length comes from the file, so none is trusted: this is the only place that reads bytes.
  std::string_view take(std::uint64_t length) {
    if (length > left_.size()) refuse();
    const std::string_view taken = left_.substr(0, length);
    left_.remove_prefix(length);
    return taken;
  }

  [[noreturn]] static void refuse() {
    throw InvalidArgument("these bytes are not the parts of a checkpoint");
  }

  std::string_view left_;
};

}  // namespace

std::string encode(const Blobs& parts) {
  std::string bytes;
  bytes.reserve(encoded_size(parts));
  append(bytes, parts);
  return bytes;
}

std::string encode(const CheckpointPayload& payload) {
  std::size_t size = sizeof(std::uint32_t) + encoded_size(payload.parts);
  for (const Blobs& own : payload.own) size += encoded_size(own);
  std::string bytes;
  bytes.reserve(size);
  append_little_endian(bytes, static_cast<std::uint32_t>(payload.own.size()));
  append(bytes, payload.parts);
  for (const Blobs& own : payload.own) append(bytes, own);
  return bytes;
}

CheckpointPayload decode(std::string_view bytes) {
  Decoder decoder(bytes);
  CheckpointPayload payload;
  const auto ranks = decoder.number<std::uint32_t>();
  payload.parts = decoder.blobs();
  for (std::uint32_t rank = 0; rank < ranks; ++rank) payload.own.push_back(decoder.blobs());
  decoder.end();
  return payload;
}

Blobs decode_parts(std::string_view bytes) {
  Decoder decoder(bytes);
  Blobs parts = decoder.blobs();
  decoder.end();
  return parts;
}

}  // namespace kolo::internal
