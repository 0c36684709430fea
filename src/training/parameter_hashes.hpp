// SPDX-License-Identifier: Apache-2.0
// The comparison of the ranks' parameters by hashes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "kolo/export.hpp"
#include "kolo/process_set.hpp"
#include "kolo/tensor.hpp"

namespace kolo::internal {

/// A tensor by its name, and a number that almost certainly differs if the bytes of its elements
/// do.
struct ParameterHash {
  std::string name;
  std::uint64_t hash = 0;
};

/// The hash of bytes, after XXH64 (https://github.com/Cyan4973/xxHash).
[[nodiscard]] KOLO_EXPORT std::uint64_t hash_of(std::span<const std::byte> bytes) noexcept;

/// A number of 31 bits for a hash. The number and its complement (`sum_of_complements` minus the
/// number) are above 0. Their maxima over ranks have that sum only if all ranks have the same.
inline constexpr std::int32_t sum_of_complements = std::numeric_limits<std::int32_t>::max();
[[nodiscard]] constexpr std::int32_t number_of(std::uint64_t hash) {
  return static_cast<std::int32_t>(1 + hash % (sum_of_complements - 1));
}

/// Hashes the tensors that are in CPU memory. Reading the memory of a GPU would wait for the GPU
/// and needs CUDA, which this library does not require: those tensors get the hash 0.
[[nodiscard]] std::vector<ParameterHash> hashes_of(const std::vector<NamedTensor>& tensors);

/// The length of `encode` for this number of hashes.
[[nodiscard]] inline std::size_t encoded_size(std::size_t hashes, const ProcessSet& set) {
  return 2 * hashes + static_cast<std::size_t>(set.size());
}

/// This rank's hashes as numbers whose maxima over the ranks show whether the hashes are equal. All
/// are above 0: a rank that has joined contributes zeros, which change no maximum.
[[nodiscard]] KOLO_EXPORT std::vector<std::int32_t> encode(const std::vector<ParameterHash>& hashes,
                                                           const ProcessSet& set);

/// Throws Mismatch unless the maxima of the ranks' `encode(hashes, set)` show equal hashes. The
/// message begins with `subject`, names the first tensor that differs and the ranks that differ
/// from the first rank, and ends with `cure`. All ranks throw the same.
KOLO_EXPORT void require_equal_hashes(const std::vector<ParameterHash>& hashes,
                                      std::span<const std::int32_t> maxima, const ProcessSet& set,
                                      const std::string& subject, const std::string& cure);

/// Collective. Throws Mismatch on every rank unless all ranks have equal hashes; see
/// `kolo::require_equal`.
KOLO_EXPORT void require_equal_hashes(const std::vector<ParameterHash>& hashes,
                                      const ProcessSet& set);

}  // namespace kolo::internal
