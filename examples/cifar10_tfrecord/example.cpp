// SPDX-License-Identifier: Apache-2.0
#include "example.hpp"

#include <bit>
#include <cstddef>
#include <optional>
#include <utility>

#include "bytes.hpp"

namespace tfrecord {
namespace {

// The wire type of a field: https://protobuf.dev/programming-guides/encoding
enum class Wire : std::uint8_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

// Field numbers in TensorFlow's example.proto and feature.proto.
constexpr std::uint64_t features_of_example = 1, map_of_features = 1, key = 1, value = 2;
constexpr std::uint64_t bytes_list = 1, float_list = 2, int64_list = 3, values = 1;

struct Field {
  std::uint64_t number;
  Wire wire;
  std::uint64_t integer;   // for a varint
  std::string_view bytes;  // for other wire types
};

// Reads the fields of one message, which is a part of `whole_`; errors give offsets in the whole.
class Fields {
 public:
  Fields(std::string_view message, const char* whole) : rest_(message), whole_(whole) {}

  std::optional<Field> next() {
    if (rest_.empty()) return std::nullopt;
    const std::uint64_t tag = varint();
    Field field{.number = tag >> 3, .wire = static_cast<Wire>(tag & 7), .integer = 0, .bytes = {}};
    switch (field.wire) {
      case Wire::varint: field.integer = varint(); return field;
      case Wire::fixed64: field.bytes = take(8); return field;
      case Wire::bytes: field.bytes = take(varint()); return field;
      case Wire::fixed32: field.bytes = take(4); return field;
    }
    fail("a field has the unknown wire type " + std::to_string(tag & 7));
  }

  std::uint64_t varint() {
    std::uint64_t result = 0;
    for (unsigned int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1).front());
      result |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return result;
    }
    fail("a number has more than 10 bytes");
  }

  std::string_view take(std::uint64_t size) {
    if (size > rest_.size()) {
      fail(std::to_string(size) + " bytes should follow, " + std::to_string(rest_.size()) + " do");
    }
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }

  [[nodiscard]] bool empty() const { return rest_.empty(); }

  [[noreturn]] void fail(const std::string& what) const {
    throw ExampleError(static_cast<std::uint64_t>(rest_.data() - whole_), what);
  }

 private:
  std::string_view rest_;
  const char* whole_;
};

float float_of(std::string_view bytes) {
  return std::bit_cast<float>(from_little_endian<std::uint32_t>(bytes));
}

Bytes parse_bytes(std::string_view message, const char* whole) {
  Bytes list;
  Fields fields(message, whole);
  while (const auto field = fields.next()) {
    if (field->number == values && field->wire == Wire::bytes) list.emplace_back(field->bytes);
  }
  return list;
}

// Numbers are packed into one field or have one field each.
Floats parse_floats(std::string_view message, const char* whole) {
  Floats list;
  Fields fields(message, whole);
  while (const auto field = fields.next()) {
    if (field->number != values) continue;
    if (field->wire == Wire::fixed32) list.push_back(float_of(field->bytes));
    if (field->wire != Wire::bytes) continue;
    for (Fields packed(field->bytes, whole); !packed.empty();) {
      list.push_back(float_of(packed.take(4)));
    }
  }
  return list;
}

Integers parse_integers(std::string_view message, const char* whole) {
  Integers list;
  Fields fields(message, whole);
  while (const auto field = fields.next()) {
    if (field->number != values) continue;
    if (field->wire == Wire::varint) list.push_back(static_cast<std::int64_t>(field->integer));
    if (field->wire != Wire::bytes) continue;
    for (Fields packed(field->bytes, whole); !packed.empty();) {
      list.push_back(static_cast<std::int64_t>(packed.varint()));
    }
  }
  return list;
}

Feature parse_feature(std::string_view message, const char* whole) {
  Feature feature;
  Fields fields(message, whole);
  while (const auto field = fields.next()) {
    if (field->wire != Wire::bytes) continue;
    if (field->number == bytes_list) feature = parse_bytes(field->bytes, whole);
    if (field->number == float_list) feature = parse_floats(field->bytes, whole);
    if (field->number == int64_list) feature = parse_integers(field->bytes, whole);
  }
  return feature;
}

void parse_entry(Example& example, std::string_view message, const char* whole) {
  std::string name;
  Feature feature;
  Fields fields(message, whole);
  while (const auto field = fields.next()) {
    if (field->wire != Wire::bytes) continue;
    if (field->number == key) name = field->bytes;
    if (field->number == value) feature = parse_feature(field->bytes, whole);
  }
  example.insert_or_assign(std::move(name), std::move(feature));
}

std::string varint(std::uint64_t number) {
  std::string bytes;
  for (; number >= 0x80; number >>= 7) bytes += static_cast<char>(number | 0x80);
  return bytes + static_cast<char>(number);
}

std::string field(std::uint64_t number, std::string_view bytes) {
  std::string message = varint(number << 3 | static_cast<std::uint64_t>(Wire::bytes));
  message += varint(bytes.size());
  return message.append(bytes);
}

struct Serializer {
  std::string operator()(std::monostate) const { return {}; }
  std::string operator()(const Bytes& list) const {
    std::string message;
    for (const std::string& item : list) message += field(values, item);
    return field(bytes_list, message);
  }
  std::string operator()(const Floats& list) const {
    std::string packed;
    for (const float item : list) packed += to_little_endian(std::bit_cast<std::uint32_t>(item));
    return field(float_list, list.empty() ? "" : field(values, packed));
  }
  std::string operator()(const Integers& list) const {
    std::string packed;
    for (const std::int64_t item : list) packed += varint(static_cast<std::uint64_t>(item));
    return field(int64_list, list.empty() ? "" : field(values, packed));
  }
};

}  // namespace

Example parse_example(std::string_view message) {
  Example example;
  Fields fields(message, message.data());
  while (const auto features = fields.next()) {
    if (features->number != features_of_example || features->wire != Wire::bytes) continue;
    Fields entries(features->bytes, message.data());
    while (const auto entry = entries.next()) {
      if (entry->number != map_of_features || entry->wire != Wire::bytes) continue;
      parse_entry(example, entry->bytes, message.data());
    }
  }
  return example;
}

std::string serialize_example(const Example& example) {
  std::string features;
  for (const auto& [name, feature] : example) {
    features +=
        field(map_of_features, field(key, name) + field(value, std::visit(Serializer{}, feature)));
  }
  return field(features_of_example, features);
}

}  // namespace tfrecord
