// SPDX-License-Identifier: Apache-2.0
// The half of the codec that writes bytes.
#include <type_traits>

#include "negotiation/wire/codec.hpp"
#include "negotiation/wire/layout.hpp"

namespace kolo::internal::negotiation {
namespace {

using flatbuffers::Offset;

/// Has one overload of `write` for each kind of field. Empty fields take no space in a message.
class MessageWriter {
  /// Writes the table of the alternative that `content` holds, and passes the alternative's number
  /// in the schema and the table to `create`. Declared first, since its return type is deduced from
  /// its body.
  template <template <typename> typename Traits, typename Content, typename Create>
  auto write_union(const Content& content, const Create& create) {
    return std::visit(
        [&]<typename Body>(const Body& body) {
          return create(Traits<TableOf<Body>>::enum_value, make_table(body).Union());
        },
        content);
  }

 public:
  template <typename Root>
  std::vector<std::byte> finish(Offset<Root> root) {
    return internal::finish(out_, root);
  }

  /// FlatBuffers requires the parts of a table before the table, so they are written while the
  /// arguments of `Create` are evaluated.
  template <typename Item>
  Offset<TableOf<Item>> make_table(const Item& item) {
    return std::apply(
        [&](const auto&... members) {
          return TableOf<Item>::Traits::Create(out_, write(members)...);
        },
        LayoutOf<Item>::of(item));
  }

  Offset<wire::Entry> make_table(const Entry& entry) {
    return write_union<wire::EntryBodyTraits>(entry.body, [&](auto type, auto body) {
      return wire::CreateEntry(out_, entry.sequence, type, body);
    });
  }

  Offset<wire::ControlMessage> make_table(std::uint64_t session, const MessageBody& content) {
    return write_union<wire::MessageBodyTraits>(content, [&](auto type, auto body) {
      return wire::CreateControlMessage(out_, session, type, body);
    });
  }

 private:
  template <typename Item>
  Offset<TableOf<Item>> write(const Item& item) {
    return make_table(item);
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

  std::int64_t write(const std::optional<CacheSlot>& slot) {
    return slot ? std::int64_t{*slot} : -1;
  }

  Offset<wire::Failure> write(const std::optional<Failure>& failure) {
    return failure ? make_table(*failure) : 0;
  }

  Offset<flatbuffers::String> write(const std::string& text) {
    return text.empty() ? 0 : out_.CreateString(text);
  }

  VectorOffset<std::int64_t> write(const Shape& shape) {
    return shape.dimensions() == 0 ? 0
                                   : out_.CreateVector(shape.lengths().data(), shape.dimensions());
  }

  VectorOffset<const wire::RankRange*> write(const RankSet& ranks) {
    std::vector<wire::RankRange> ranges;
    for (const RankSet::Range& range : ranks.ranges()) ranges.emplace_back(range.first, range.last);
    return ranges.empty() ? 0 : out_.CreateVectorOfStructs(ranges);
  }

  VectorOffset<std::uint64_t> write(const CacheSlotSet& slots) { return write_list(slots.words()); }

  VectorOffset<std::int32_t> write(const std::vector<int>& ranks) { return write_list(ranks); }

  template <typename Item>
  VectorOffset<Offset<TableOf<Item>>> write(const std::vector<Item>& items) {
    std::vector<Offset<TableOf<Item>>> tables;
    for (const Item& item : items) tables.push_back(make_table(item));
    return write_list(tables);
  }

  template <typename Element>
  VectorOffset<Element> write_list(const std::vector<Element>& elements) {
    return elements.empty() ? 0 : out_.CreateVector(elements);
  }

  flatbuffers::FlatBufferBuilder out_{};
};

}  // namespace

std::vector<std::byte> encode(std::uint64_t session, const MessageBody& body) {
  MessageWriter writer;
  return writer.finish(writer.make_table(session, body));
}

std::vector<std::byte> encode_status(const RankStatus& status) {
  MessageWriter writer;
  return writer.finish(writer.make_table(status));
}

}  // namespace kolo::internal::negotiation
