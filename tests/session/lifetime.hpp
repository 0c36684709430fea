// SPDX-License-Identifier: Apache-2.0
// Declarations shared by the files of lifetime_program.
#pragma once

#include <cstdlib>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "kolo/kolo.hpp"

using Ways = std::map<std::string, std::function<void()>>;

/// The ways that call MPI; none in a build without MPI.
Ways ways_over_mpi();
/// True if MPI was initialized.
bool mpi_is_used();

inline void check(bool fine, const std::string& what) {
  if (!fine) throw std::runtime_error("not so: " + what);
}

template <typename E, typename Function>
void check_throws(Function function, const std::string& text) {
  try {
    function();
  } catch (const E& error) {
    check(std::string(error.what()).find(text) != std::string::npos,
          "\"" + std::string(error.what()) + "\" has \"" + text + '"');
    return;
  }
  throw std::runtime_error("nothing was thrown that has \"" + text + '"');
}

/// Fails unless the session works.
inline void work(int expected_rank, int expected_size) {
  check(kolo::rank() == expected_rank, "the rank");
  check(kolo::size() == expected_size, "the size");
  std::vector<double> tensor(100, expected_rank + 1);
  kolo::allreduce(tensor, {.name = "tensor", .op = kolo::ReduceOp::sum});
  check(tensor.back() == expected_size * (expected_size + 1) / 2, "the sum");
}

inline int rank_of_kolorun() { return std::atoi(std::getenv("RANK")); }
