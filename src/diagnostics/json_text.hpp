// SPDX-License-Identifier: Apache-2.0
// Text as a JSON string.
#pragma once

#include <string>
#include <string_view>

namespace kolo::internal::diagnostics {

/// `text` in quotation marks, escaped. Bytes that are not UTF-8 become U+FFFD, so that every reader
/// accepts the result.
[[nodiscard]] std::string json_string(std::string_view text);

}  // namespace kolo::internal::diagnostics
