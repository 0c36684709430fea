// SPDX-License-Identifier: Apache-2.0
// How all ranks load one checkpoint together.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <vector>

#include "kolo/training/checkpoint.hpp"

namespace kolo::internal {

enum class IfDamaged : std::uint8_t { skip, fail };

/// Collective. Loads the first undamaged checkpoint of those that `find_all` returns on rank 0;
/// `std::nullopt` if there is none. A damaged one is reported by a warning, or its error is thrown
/// on all ranks. `where` is for messages of errors.
[[nodiscard]] std::optional<Checkpoint> load_first(
    const std::filesystem::path& where, IfDamaged if_damaged,
    const std::function<std::vector<std::filesystem::path>()>& find_all);

}  // namespace kolo::internal
