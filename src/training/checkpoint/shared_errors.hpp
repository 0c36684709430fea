// SPDX-License-Identifier: Apache-2.0
// Failures of one rank that all ranks throw: otherwise the others would wait in a collective that
// the failed rank never enters. Unlike those of training/agreement.hpp, they keep the fault and the
// path of a CheckpointError.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "kolo/training/checkpoint.hpp"

namespace kolo::internal {

/// An error as it is sent: fault, path and message, separated by zero bytes.
[[nodiscard]] std::string to_text(const CheckpointError& error);
[[noreturn]] void throw_from(const std::string& text);
/// The message of such an error.
[[nodiscard]] std::string message_in(const std::string& text);

/// Collective. Runs `work` on rank 0 and returns its result on all ranks. Throws its failure on all
/// ranks, as a CheckpointError; `path` is for failures of other classes.
std::string on_rank_0(const std::filesystem::path& path, const std::function<std::string()>& work);

/// Collective. Runs `work` on all ranks. Returns the error of the lowest rank that has one, as a
/// text; "" if all succeed. A rank that has joined has none.
[[nodiscard]] std::string first_error(const std::filesystem::path& path,
                                      const std::function<void()>& work);

}  // namespace kolo::internal
