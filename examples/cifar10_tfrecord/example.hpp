// SPDX-License-Identifier: Apache-2.0
// TensorFlow's message `Example`: features by name. protozero reads and writes it without generated
// code, because a second protobuf library next to LibTorch's could abort the process at its start.
#pragma once

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace tfrecord {

using Bytes = std::vector<std::string>;
using Floats = std::vector<float>;
using Integers = std::vector<std::int64_t>;

/// The values of one feature; std::monostate if the message has no list of values.
using Feature = std::variant<std::monostate, Bytes, Floats, Integers>;

using Example = std::map<std::string, Feature>;

/// Thrown for bytes that are not an Example. `offset` is the position of the unreadable field.
class ExampleError : public std::runtime_error {
 public:
  ExampleError(std::uint64_t offset, const std::string& what)
      : std::runtime_error(what), offset_(offset) {}
  [[nodiscard]] std::uint64_t offset() const noexcept { return offset_; }

 private:
  std::uint64_t offset_;
};

/// Reads a message. Skips unknown fields, as protobuf does; for a repeated name the last feature
/// counts. Reads the context of a SequenceExample and skips its lists. Throws ExampleError.
[[nodiscard]] Example parse_example(std::string_view message);

/// Writes a message with features in the order of their names and packed numbers.
[[nodiscard]] std::string serialize_example(const Example& example);

}  // namespace tfrecord
