// SPDX-License-Identifier: Apache-2.0
// A target: a decoder of external bytes, as a function of any bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace kolo::internal::fuzz {

using Bytes = std::span<const std::uint8_t>;

struct Seed {
  std::string name;
  std::string bytes;
};

/// One decoder.
struct Target {
  std::string_view name;
  std::size_t max_bytes;  // longer inputs reach no further code
  /// True if the decoder accepts the bytes, false if it throws its own error. Any other exception
  /// is a bug.
  bool (*run)(Bytes);
  /// Accepted inputs, at least one for each way to be accepted; equal in every run.
  std::vector<Seed> (*seeds)();
  /// Repairs checksums, so that mutated bytes reach the code behind them.
  void (*repair)(std::span<std::uint8_t>) = nullptr;
};

/// Thrown if the decoder accepts an input but does not keep a promise about it.
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

/// An input as a sequence of choices: one per byte, and zeros after the end.
class Choices {
 public:
  explicit Choices(Bytes bytes) : left_(bytes) {}

  [[nodiscard]] bool done() const { return left_.empty(); }
  std::size_t next() {
    if (left_.empty()) return 0;
    const std::size_t value = left_.front();
    left_ = left_.subspan(1);
    return value;
  }
  std::size_t next_two() {
    const std::size_t high = next();
    return high << 8 | next();
  }

 private:
  Bytes left_;
};

[[nodiscard]] std::span<const Target> targets();
/// Returns null if there is no such target.
[[nodiscard]] const Target* find_target(std::string_view name);

// The targets, each defined in a file of its own.
extern const Target startup_reports_target;
extern const Target checkpoint_file_target;
extern const Target cifar10_file_target;
extern const Target connection_target;
extern const Target diagnosis_target;
extern const Target flight_record_target;
extern const Target gradient_set_target;
extern const Target handshake_target;
extern const Target hook_state_target;
extern const Target json_text_target;
extern const Target rendezvous_target;
extern const Target ring_target;
extern const Target safetensors_target;
extern const Target safetensors_file_target;
extern const Target safetensors_index_target;
extern const Target settings_target;
extern const Target sizes_target;
extern const Target standing_target;
extern const Target state_text_target;
extern const Target status_target;
extern const Target stranger_target;
extern const Target tfrecord_example_target;
extern const Target tfrecord_file_target;
extern const Target tfrecord_images_target;
extern const Target wire_target;

}  // namespace kolo::internal::fuzz
