// What reads bytes from outside, as a function that any bytes may be thrown at.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace kolo::fuzz {

using Bytes = std::span<const std::uint8_t>;

struct Seed {
  std::string name;
  std::string bytes;
};

/// One decoder.
struct Target {
  std::string_view name;
  std::size_t most_bytes;  // longer inputs find nothing more
  /// True if the bytes were accepted. Refuses the rest with the decoder's own error; anything else
  /// that it throws is a bug.
  bool (*run)(Bytes);
  /// Inputs that are accepted, by every way there is.
  std::vector<Seed> (*seeds)();
  /// Makes checksums right, so that changed bytes reach what is behind them.
  void (*repair)(std::span<std::uint8_t>) = nullptr;
};

/// A decoder accepted something and made something else of it.
class BrokenPromise : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

inline void require(bool promise, const char* what) {
  if (!promise) throw BrokenPromise(what);
}

[[nodiscard]] inline std::string_view as_text(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

[[nodiscard]] inline Bytes as_input(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

[[nodiscard]] std::span<const Target> targets();
/// Null if there is none.
[[nodiscard]] const Target* find_target(std::string_view name);

// Each in a file of its own.
extern const Target ballots_target;
extern const Target checkpoint_file_target;
extern const Target checkpoint_payload_target;
extern const Target cifar10_file_target;
extern const Target connection_target;
extern const Target diagnosis_target;
extern const Target flight_record_target;
extern const Target gradient_set_target;
extern const Target json_text_target;
extern const Target ring_target;
extern const Target settings_target;
extern const Target sizes_target;
extern const Target standing_target;
extern const Target state_text_target;
extern const Target status_target;
extern const Target tfrecord_example_target;
extern const Target tfrecord_file_target;
extern const Target tfrecord_images_target;
extern const Target wire_target;

}  // namespace kolo::fuzz
