// SPDX-License-Identifier: Apache-2.0
// The half of the codec that writes bytes.
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "negotiation/wire/codec.hpp"
#include "negotiation/wire/layout.hpp"

namespace kolo::internal::negotiation {
namespace {

using flatbuffers::Offset;

class MessageWriter : public TableWriter<MessageWriter, LayoutOf> {
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
  using TableWriter::make_table;
  using TableWriter::write;

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

  template <typename Item>
  Offset<TableOf<Item>> write(const Item& item) {
    return make_table(item);
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
