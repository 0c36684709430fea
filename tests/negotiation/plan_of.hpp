// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "negotiation/wire/message.hpp"

namespace kolo::internal::negotiation {

/// A plan of operations "0", "1", ..., with `batches[i]` of them in batch i.
inline PlanEntry plan_of(const std::vector<int>& batches, std::uint64_t epoch = 1) {
  PlanEntry entry{epoch, {}, std::chrono::milliseconds(20)};
  int next = 0;
  for (const int count : batches) {
    std::vector<PlanItem>& batch = entry.batches.emplace_back();
    for (int i = 0; i < count; ++i) batch.push_back({{.name = std::to_string(next++)}, {}});
  }
  return entry;
}

}  // namespace kolo::internal::negotiation
