// SPDX-License-Identifier: Apache-2.0
// Results of the benchmarks for GPUs, as tests/gpu/rows.py reads them.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <kolo/kolo.hpp>
#include <string_view>

namespace measured {

/// Prints one number on rank 0.
inline void print(std::string_view name, double value, std::string_view unit) {
  if (kolo::rank() != 0) return;
  fmt::print("measured {} {:.4f} {}\n", name, value, unit);
  std::fflush(stdout);
}

}  // namespace measured
