// SPDX-License-Identifier: Apache-2.0
#include "example.hpp"

#include <cstddef>
#include <protozero/pbf_builder.hpp>
#include <protozero/pbf_message.hpp>
#include <utility>

namespace tfrecord {
namespace {

using protozero::data_view, protozero::pbf_builder, protozero::pbf_message, protozero::tag_and_type;
constexpr auto varint = protozero::pbf_wire_type::varint;
constexpr auto delimited = protozero::pbf_wire_type::length_delimited;
constexpr auto fixed32 = protozero::pbf_wire_type::fixed32;

// Field numbers in TensorFlow's example.proto and feature.proto.
enum class InExample : protozero::pbf_tag_type { features = 1 };
enum class InFeatures : protozero::pbf_tag_type { feature = 1 };
enum class InEntry : protozero::pbf_tag_type { key = 1, value = 2 };
enum class InFeature : protozero::pbf_tag_type { bytes_list = 1, float_list = 2, int64_list = 3 };
enum class InList : protozero::pbf_tag_type { value = 1 };

// Calls `read` for each field of a message, and skips the fields for which it returns false.
// `position` is advanced from field to field, because protozero's exceptions do not say where a
// message is damaged.
template <typename Fields, typename Read>
void read_fields(data_view message, const char*& position, const Read& read) {
  pbf_message<Fields> field(message);
  for (;;) {
    position = field.data().data();
    if (!field.next()) return;
    if (!read(field)) field.skip();
  }
}

Bytes parse_bytes(data_view message, const char*& position) {
  Bytes list;
  read_fields<InList>(message, position, [&](auto& field) {
    if (field.tag_and_type() != tag_and_type(InList::value, delimited)) return false;
    list.push_back(field.get_string());
    return true;
  });
  return list;
}

// Numbers are either packed into one field or stored one per field.
Floats parse_floats(data_view message, const char*& position) {
  Floats list;
  read_fields<InList>(message, position, [&](auto& field) {
    if (field.tag() != InList::value) return false;
    if (field.has_wire_type(fixed32)) {
      list.push_back(field.get_float());
    } else if (field.has_wire_type(delimited)) {
      for (const float value : field.get_packed_float()) list.push_back(value);
    } else {
      return false;
    }
    return true;
  });
  return list;
}

Integers parse_integers(data_view message, const char*& position) {
  Integers list;
  read_fields<InList>(message, position, [&](auto& field) {
    if (field.tag() != InList::value) return false;
    if (field.has_wire_type(varint)) {
      list.push_back(field.get_int64());
    } else if (field.has_wire_type(delimited)) {
      for (const std::int64_t value : field.get_packed_int64()) list.push_back(value);
    } else {
      return false;
    }
    return true;
  });
  return list;
}

Feature parse_feature(data_view message, const char*& position) {
  Feature feature;
  read_fields<InFeature>(message, position, [&](auto& field) {
    if (!field.has_wire_type(delimited)) return false;
    switch (field.tag()) {
      case InFeature::bytes_list: feature = parse_bytes(field.get_view(), position); return true;
      case InFeature::float_list: feature = parse_floats(field.get_view(), position); return true;
      case InFeature::int64_list: feature = parse_integers(field.get_view(), position); return true;
    }
    return false;
  });
  return feature;
}

void parse_entry(Example& example, data_view message, const char*& position) {
  std::string name;
  Feature feature;
  read_fields<InEntry>(message, position, [&](auto& field) {
    if (!field.has_wire_type(delimited)) return false;
    switch (field.tag()) {
      case InEntry::key: name = field.get_string(); return true;
      case InEntry::value: feature = parse_feature(field.get_view(), position); return true;
    }
    return false;
  });
  example.insert_or_assign(std::move(name), std::move(feature));
}

void parse_features(Example& example, data_view message, const char*& position) {
  read_fields<InFeatures>(message, position, [&](auto& field) {
    if (field.tag_and_type() != tag_and_type(InFeatures::feature, delimited)) return false;
    parse_entry(example, field.get_view(), position);
    return true;
  });
}

// The bytes of a Feature. A list without values is written too, because its type is information.
struct Serializer {
  std::string operator()(std::monostate) const { return ""; }

  std::string operator()(const Bytes& values) const {
    return feature_of(InFeature::bytes_list, [&](pbf_builder<InList>& list) {
      for (const std::string& value : values) list.add_bytes(InList::value, value);
    });
  }

  std::string operator()(const Floats& values) const {
    return feature_of(InFeature::float_list, [&](pbf_builder<InList>& list) {
      list.add_packed_float(InList::value, values.begin(), values.end());
    });
  }

  std::string operator()(const Integers& values) const {
    return feature_of(InFeature::int64_list, [&](pbf_builder<InList>& list) {
      list.add_packed_int64(InList::value, values.begin(), values.end());
    });
  }

 private:
  template <typename Write>
  static std::string feature_of(InFeature kind, const Write& write) {
    std::string values, feature;
    pbf_builder<InList> list(values);
    write(list);
    pbf_builder<InFeature>(feature).add_message(kind, values);
    return feature;
  }
};

}  // namespace

Example parse_example(std::string_view message) {
  Example example;
  const char* position = message.data();
  try {
    read_fields<InExample>({message.data(), message.size()}, position, [&](auto& field) {
      if (field.tag_and_type() != tag_and_type(InExample::features, delimited)) return false;
      parse_features(example, field.get_view(), position);
      return true;
    });
  } catch (const protozero::exception& error) {
    throw ExampleError(static_cast<std::uint64_t>(position - message.data()),
                       std::string("a field cannot be read: ") + error.what());
  }
  return example;
}

std::string serialize_example(const Example& example) {
  std::string features;
  pbf_builder<InFeatures> map(features);
  for (const auto& [name, feature] : example) {
    pbf_builder<InEntry> entry(map, InFeatures::feature);
    entry.add_string(InEntry::key, name);
    entry.add_message(InEntry::value, std::visit(Serializer{}, feature));
  }
  std::string message;
  pbf_builder<InExample>(message).add_message(InExample::features, features);
  return message;
}

}  // namespace tfrecord
