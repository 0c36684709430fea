// SPDX-License-Identifier: Apache-2.0
// The optimizers of programs in C.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "c/handles.hpp"
#include "kolo/c/optimizer.h"
#include "kolo/optimizer.hpp"

namespace kolo::internal::c {

struct Optimizer {
  std::vector<NamedTensor> gradients;
  std::vector<NamedTensor> parameters;
  detail::NamedGradientReducer reducer;
  bool is_sharded;
  /// The number of the last reduction, until a step begins with it.
  std::optional<std::int64_t> reduction{};
  bool is_stepping = false;

  /// Collective.
  void rejoin() {
    is_stepping = false;
    reduction.reset();
    reducer.rejoin(gradients);
  }
};

template <>
struct Kind<kolo_optimizer> {
  using Object = Optimizer;
  static constexpr std::uint64_t number = 3;
  static constexpr const char* name = "optimizer";
};

}  // namespace kolo::internal::c
