// SPDX-License-Identifier: Apache-2.0
// The parts that all codecs with FlatBuffers share.
#pragma once

#include <flatbuffers/flatbuffers.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

namespace kolo::internal {

template <typename Element>
using VectorOffset = flatbuffers::Offset<flatbuffers::Vector<Element>>;

/// The members of a struct in the order in which the schema lists the fields of its table.
template <typename SchemaTable, auto... members>
struct Fields {
  using Table = SchemaTable;

  template <typename Item>
  static auto of(Item& item) {
    static_assert(sizeof...(members) == Table::Traits::fields_number);
    return std::forward_as_tuple(std::invoke(members, item)...);
  }
};

/// Ends the message with its root table and returns its bytes.
template <typename Root>
[[nodiscard]] std::vector<std::byte> finish(flatbuffers::FlatBufferBuilder& out,
                                            flatbuffers::Offset<Root> root) {
  out.Finish(root);
  const auto* begin = reinterpret_cast<const std::byte*>(out.GetBufferPointer());
  return {begin, begin + out.GetSize()};
}

/// Verifies the bytes and passes their root table to `read`, whose result is returned. Copies the
/// bytes first if they are not aligned as FlatBuffers requires. Throws `Error` for damaged bytes.
template <typename Root, typename Error, typename Read>
[[nodiscard]] auto read_verified(std::span<const std::byte> bytes, const char* what,
                                 flatbuffers::uoffset_t max_depth, const Read& read) {
  std::vector<std::byte> aligned;
  if (reinterpret_cast<std::uintptr_t>(bytes.data()) % sizeof(std::uint64_t) != 0) {
    aligned.assign(bytes.begin(), bytes.end());
    bytes = aligned;
  }
  // Kolo's encoders share no tables, so each table has at least four bytes of its own. This bound
  // on the number of tables keeps the work for a message proportional to its length.
  constexpr std::size_t min_table = 4;
  const auto* data = reinterpret_cast<const std::uint8_t*>(bytes.data());
  flatbuffers::Verifier verifier(data, bytes.size(), max_depth,
                                 static_cast<flatbuffers::uoffset_t>(bytes.size() / min_table));
  if (bytes.empty() || !verifier.VerifyBuffer<Root>(nullptr))
    throw Error(std::string(what) + " of " + std::to_string(bytes.size()) + " bytes is damaged");
  return read(*flatbuffers::GetRoot<Root>(data));
}

}  // namespace kolo::internal
