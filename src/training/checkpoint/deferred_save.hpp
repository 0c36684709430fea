// SPDX-License-Identifier: Apache-2.0
// Saving what is only made within the call, for interfaces that convert it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <utility>

#include "kolo/training/checkpoint.hpp"

namespace kolo::internal {

/// The functions of `Checkpointer` of the same names. An exception of `contents` on one rank is
/// InvalidArgument on all.
struct DeferredSave {
  using Contents = std::function<std::pair<NamedViews, CheckpointExtras>()>;
  static std::filesystem::path save(Checkpointer& checkpointer, std::int64_t step,
                                    const Contents& contents);
  static std::optional<std::filesystem::path> save_async(Checkpointer& checkpointer,
                                                         std::int64_t step,
                                                         const Contents& contents, IfBusy if_busy);
};

}  // namespace kolo::internal
