// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace kolo::internal::diagnostics {

/// Writes the file, which appears complete or not at all. A device, a pipe or a link cannot be
/// replaced by a file, so the text is written into it directly. Returns false, with `errno`, if the
/// file cannot be written.
[[nodiscard]] bool replace_file(const std::string& path, std::string_view text);

}  // namespace kolo::internal::diagnostics
