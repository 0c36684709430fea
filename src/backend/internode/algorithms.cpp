// SPDX-License-Identifier: Apache-2.0
#include "backend/internode/algorithms.hpp"

#include "backend/batch.hpp"
#include "base/dtype.hpp"

namespace kolo::internal::backend::internode {
namespace {

/// The bytes that an owner may send in addition to save the latency of a message.
constexpr std::int64_t max_bytes_to_save_latency = 16 << 10;

}  // namespace

InterNodeAlgorithm select_algorithm(int owners, std::int64_t elements, DType wire) {
  using enum InterNodeAlgorithm;
  // Between two owners, `whole` and `direct` send equally many bytes, unless the type is half:
  // results are then shorter than partial results.
  if (owners == 2) return is_half(wire) ? direct : whole;
  const std::int64_t bytes = elements * signed_size_of(combined_type(wire));
  if (owners > max_owners_at_once) return bytes <= max_bytes_to_save_latency ? doubling : halving;
  return (owners - 1) * bytes <= max_bytes_to_save_latency ? whole : direct;
}

}  // namespace kolo::internal::backend::internode
