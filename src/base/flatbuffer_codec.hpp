// SPDX-License-Identifier: Apache-2.0
// The parts that all codecs with FlatBuffers share.
#pragma once

#include <flatbuffers/flatbuffers.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
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

/// The base of `Writer`, which writes the tables of one schema. `LayoutOf<Item>` is the `Fields` of
/// the struct `Item`. There is one overload of `write` for each kind of field; `Writer` adds those
/// of its own kinds. Empty fields take no space in a message.
template <typename Writer, template <typename> typename LayoutOf>
class TableWriter {
 public:
  template <typename Item>
  using TableOf = typename LayoutOf<Item>::Table;

  /// FlatBuffers requires the parts of a table before the table, so they are written while the
  /// arguments of `Create` are evaluated.
  template <typename Item>
  flatbuffers::Offset<TableOf<Item>> make_table(const Item& item) {
    return std::apply(
        [&](const auto&... members) {
          return TableOf<Item>::Traits::Create(out_, self().write(members)...);
        },
        LayoutOf<const Item>::of(item));
  }

  template <typename Number>
    requires std::is_arithmetic_v<Number> Number write(Number number) { return number; }

  template <typename Enumeration>
    requires std::is_enum_v<Enumeration> std::uint8_t write(Enumeration value) {
      return static_cast<std::uint8_t>(value);
    }

  template <typename Period>
  std::int64_t write(std::chrono::duration<std::int64_t, Period> time) {
    return time.count();
  }

  VectorOffset<std::int32_t> write(const std::vector<std::int32_t>& numbers) {
    return write_list(numbers);
  }

  VectorOffset<std::uint64_t> write(const std::vector<std::uint64_t>& numbers) {
    return write_list(numbers);
  }

  template <typename Item>
  VectorOffset<flatbuffers::Offset<TableOf<Item>>> write(const std::vector<Item>& items) {
    std::vector<flatbuffers::Offset<TableOf<Item>>> tables;
    for (const Item& item : items) tables.push_back(self().make_table(item));
    return write_list(tables);
  }

  /// Ends the message with its root table and returns its bytes.
  template <typename Root>
  [[nodiscard]] std::vector<std::byte> finish(flatbuffers::Offset<Root> root) {
    out_.Finish(root);
    const auto* begin = reinterpret_cast<const std::byte*>(out_.GetBufferPointer());
    return {begin, begin + out_.GetSize()};
  }

 protected:
  template <typename Element>
  VectorOffset<Element> write_list(const std::vector<Element>& elements) {
    return elements.empty() ? 0 : out_.CreateVector(elements);
  }

  flatbuffers::FlatBufferBuilder out_{};

 private:
  Writer& self() { return static_cast<Writer&>(*this); }
};

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
