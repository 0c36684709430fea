// What messages and statuses have in common as bytes.
#pragma once

#include <flatbuffers/flatbuffers.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/rank_set.hpp"
#include "negotiation/codec.hpp"
#include "negotiation/key.hpp"
#include "wire_generated.h"

namespace kolo::negotiation::codec {

using Ranges = flatbuffers::Vector<const wire::RankRange*>;

[[nodiscard]] flatbuffers::Offset<Ranges> write(flatbuffers::FlatBufferBuilder& out,
                                                const RankSet& ranks);
[[nodiscard]] flatbuffers::Offset<wire::Key> write(flatbuffers::FlatBufferBuilder& out,
                                                   const Key& key);

// Null, where it may be, is what is empty. What no sender can have meant is a ProtocolError.
[[nodiscard]] RankSet read(const Ranges* ranges);
[[nodiscard]] std::string read(const flatbuffers::String* text);
[[nodiscard]] Key read(const wire::Key& key);
[[nodiscard]] SetId read_set(std::int64_t set);
[[nodiscard]] int read_rank(std::int32_t rank);
[[nodiscard]] std::chrono::milliseconds read_milliseconds(std::int64_t count);

[[noreturn]] void refuse_enum(const char* what, int value);

template <typename Enum>
[[nodiscard]] Enum read_enum(std::uint8_t value, Enum last, const char* what) {
  if (value > static_cast<std::uint8_t>(last)) refuse_enum(what, value);
  return static_cast<Enum>(value);
}

/// The bytes at an address where FlatBuffers may read them: a copy, if they are not.
class Aligned {
 public:
  explicit Aligned(std::span<const std::byte> bytes);
  Aligned(const Aligned&) = delete;
  Aligned& operator=(const Aligned&) = delete;

  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::vector<std::byte> copy_{};
  std::span<const std::byte> bytes_;
};

/// For a buffer of so many bytes. Its tables do not share parts, as ours never do: what is read
/// stays in proportion to what came.
[[nodiscard]] flatbuffers::Verifier verifier_of(std::span<const std::byte> bytes);

}  // namespace kolo::negotiation::codec
