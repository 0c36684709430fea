// SPDX-License-Identifier: Apache-2.0
// The state of a small object as a line of text: its kind with a version, then numbers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kolo::internal {

/// Writes doubles in hexadecimal, so that they are read back bit for bit, except the bits of NaNs.
class StateWriter {
 public:
  /// `kind` is one word that names the object and the format's version: "kolo.sampler.1".
  explicit StateWriter(const std::string& kind) : text_(kind) {}

  StateWriter& add(std::int64_t number);
  StateWriter& add(std::uint64_t number);
  StateWriter& add(double number);

  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  std::string text_;
};

/// Reads the numbers that a StateWriter wrote, in the same order. All functions throw
/// InvalidArgument, naming `kind`, if the text does not match.
class StateReader {
 public:
  StateReader(const std::string& kind, const std::string& text);

  [[nodiscard]] std::int64_t integer();
  [[nodiscard]] std::uint64_t natural();
  [[nodiscard]] double real();
  /// Throws if numbers are left to read.
  void end() const;

 private:
  [[nodiscard]] const std::string& word();
  [[noreturn]] void refuse() const;

  std::string kind_;
  std::string text_;
  std::vector<std::string> words_;
  std::size_t read_ = 1;
};

}  // namespace kolo::internal
