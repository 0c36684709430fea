// SPDX-License-Identifier: Apache-2.0
#include "training/state_text.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <sstream>

#include "kolo/error.hpp"

namespace kolo::internal {
namespace {

template <typename Integer>
bool parse(const std::string& word, Integer& number) {
  const char* end = word.data() + word.size();
  // The whole word must be the number: "12x" is refused.
  const auto [stopped, error] = std::from_chars(word.data(), end, number);
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

StateWriter& StateWriter::add(double number) {
  text_ += fmt::format(" {:a}", number);
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
  const std::string& text = word();
  char* stopped = nullptr;
  const double number = std::strtod(text.c_str(), &stopped);
  if (stopped != text.c_str() + text.size()) refuse();
  return number;
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
