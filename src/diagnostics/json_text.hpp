// Text as JSON has it.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace kolo::internal::diagnostics {

/// Appends `text` in quotation marks. What is not UTF-8 becomes U+FFFD, so that every reader takes
/// it.
void append_quoted(fmt::memory_buffer& out, std::string_view text);

[[nodiscard]] std::string json_string(std::string_view text);

}  // namespace kolo::internal::diagnostics
