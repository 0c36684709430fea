// The state of a small object as a line of text: its kind, a version, and numbers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kolo::detail {

/// Doubles are written in hexadecimal: they come back bit for bit, unless they are NaNs.
class StateWriter {
 public:
  /// `kind` is a word that says what is described, with a version: "kolo.sampler.1".
  explicit StateWriter(const std::string& kind) : text_(kind) {}

  StateWriter& add(std::int64_t number);
  StateWriter& add(std::uint64_t number);
  StateWriter& add(double number);

  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  std::string text_;
};

/// Reads what the writer wrote, in the same order. Everything throws InvalidArgument, which names
/// `kind`, if the text is something else.
class StateReader {
 public:
  StateReader(const std::string& kind, const std::string& text);

  [[nodiscard]] std::int64_t integer();
  [[nodiscard]] std::uint64_t natural();
  [[nodiscard]] double real();
  /// That was all.
  void end() const;

 private:
  [[nodiscard]] const std::string& word();
  [[noreturn]] void refuse() const;

  std::string kind_;
  std::string text_;
  std::vector<std::string> words_;
  std::size_t read_ = 1;
};

}  // namespace kolo::detail
