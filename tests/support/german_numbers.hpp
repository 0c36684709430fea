// SPDX-License-Identifier: Apache-2.0
// A locale in which numbers are written as in German.
#pragma once

#include <locale>
#include <string>

namespace kolo::internal {

/// As in German: 1.234,5.
struct Comma : std::numpunct<char> {
  [[nodiscard]] char do_decimal_point() const override { return ','; }
  [[nodiscard]] char do_thousands_sep() const override { return '.'; }
  [[nodiscard]] std::string do_grouping() const override { return "\3"; }
};

/// Makes it the program's locale while the object lives.
class GermanNumbers {
 public:
  GermanNumbers() { std::locale::global(std::locale(std::locale::classic(), new Comma)); }
  ~GermanNumbers() { std::locale::global(std::locale::classic()); }
  GermanNumbers(const GermanNumbers&) = delete;
  GermanNumbers& operator=(const GermanNumbers&) = delete;
};

}  // namespace kolo::internal
