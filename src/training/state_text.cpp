// SPDX-License-Identifier: Apache-2.0
#include "training/state_text.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <sstream>
#include <string_view>

#include "kolo/error.hpp"

namespace kolo::internal {
namespace {

constexpr std::string_view hexadecimal = "0x";

// Returns false unless the whole word is a number: "12x" is refused.
template <typename Number, typename... Format>
bool parse(std::string_view word, Number& number, Format... format) {
  const char* end = word.data() + word.size();
  const auto [stopped, error] = std::from_chars(word.data(), end, number, format...);
  return error == std::errc() && stopped == end;
}

}  // namespace

StateWriter& StateWriter::add(std::int64_t number) {
  text_ += fmt::format(" {}", number);
  return *this;
}

StateWriter& StateWriter::add(std::uint64_t number) {
  text_ += fmt::format(" {}", number);
  return *this;
}

// Prints like the %a of printf, but with a decimal point in every locale. `std::to_chars` writes no
// "0x", so the prefix and the sign before it are added here.
StateWriter& StateWriter::add(double number) {
  constexpr std::size_t max_digits = 32;
  std::array<char, max_digits> digits{};
  const auto [end, error] =
      std::to_chars(digits.begin(), digits.end(), std::fabs(number), std::chars_format::hex);
  text_ += std::signbit(number) ? " -" : " ";
  if (std::isfinite(number)) text_ += hexadecimal;
  text_.append(digits.begin(), end);
  return *this;
}

StateReader::StateReader(const std::string& kind, const std::string& text)
    : kind_(kind), text_(text) {
  std::istringstream stream(text);
  for (std::string word; stream >> word;) words_.push_back(word);
  if (words_.empty() || words_.front() != kind) refuse();
}

std::int64_t StateReader::integer() {
  std::int64_t number = 0;
  if (!parse(word(), number)) refuse();
  return number;
}

std::uint64_t StateReader::natural() {
  std::uint64_t number = 0;
  if (!parse(word(), number)) refuse();
  return number;
}

double StateReader::real() {
  std::string_view digits = word();
  const bool is_negative = digits.starts_with('-');
  if (is_negative) digits.remove_prefix(1);
  const bool is_hexadecimal = digits.starts_with(hexadecimal);
  if (is_hexadecimal) digits.remove_prefix(hexadecimal.size());
  double number = 0.0;
  // `parse` would accept a second minus sign, as in "--1" and "-0x-1".
  if (digits.starts_with('-') ||
      !parse(digits, number,
             is_hexadecimal ? std::chars_format::hex : std::chars_format::general)) {
    refuse();
  }
  return is_negative ? -number : number;
}

void StateReader::end() const {
  if (read_ != words_.size()) refuse();
}

const std::string& StateReader::word() {
  if (read_ >= words_.size()) refuse();
  return words_[read_++];
}

void StateReader::refuse() const {
  constexpr std::size_t shown = 60;
  throw InvalidArgument(
      fmt::format("'{}' is not a state of kind '{}'", text_.substr(0, shown), kind_));
}

}  // namespace kolo::internal
