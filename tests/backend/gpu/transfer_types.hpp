// SPDX-License-Identifier: Apache-2.0
// The pairs of types between which the transfer kernel converts.
#pragma once

#include <vector>

#include "kolo/types.hpp"

namespace kolo::internal::backend {

struct Types {
  DType from;
  DType to;
};

inline std::vector<Types> all_types() {
  std::vector<Types> all;
  for (int type = 0; type <= static_cast<int>(DType::boolean); ++type)
    all.push_back({static_cast<DType>(type), static_cast<DType>(type)});
  for (const DType wide : {DType::f32, DType::f64})
    for (const DType half : {DType::f16, DType::bf16}) {
      all.push_back({wide, half});
      all.push_back({half, wide});
    }
  return all;
}

}  // namespace kolo::internal::backend
