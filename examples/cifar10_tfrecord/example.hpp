// TensorFlow's message `Example`: features by name. Read and written here without the protobuf
// library; docs/decisions/0043 says why.
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

/// The values of one feature; std::monostate if the message says nothing of their kind.
using Feature = std::variant<std::monostate, Bytes, Floats, Integers>;

using Example = std::map<std::string, Feature>;

/// Bytes that are no Example. `offset` is where reading them came to an end.
class ExampleError : public std::runtime_error {
 public:
  ExampleError(std::uint64_t offset, const std::string& what)
      : std::runtime_error(what), offset_(offset) {}
  [[nodiscard]] std::uint64_t offset() const noexcept { return offset_; }

 private:
  std::uint64_t offset_;
};

/// Reads a message. Fields that are not known are passed over, as protobuf does; of a name that
/// occurs twice the last counts. A SequenceExample's context is read, and its lists are passed
/// over. Throws ExampleError.
[[nodiscard]] Example parse_example(std::string_view message);

/// Writes a message: features in the order of their names, numbers packed.
[[nodiscard]] std::string serialize_example(const Example& example);

}  // namespace tfrecord
