// SPDX-License-Identifier: Apache-2.0
// Text, as bytes, cut into windows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "network.hpp"

namespace gpt {

/// Reads a whole file. Throws std::runtime_error if it cannot be read.
[[nodiscard]] std::string read_text(const std::filesystem::path& path);

/// Generates short stories of about `size` bytes in total, to train on without a text:
///
///     Anna has a red ball. Anna gives the red ball to Ben. Now Ben has the red ball.
///
/// The first two sentences determine every byte of the third, so the network must look back to
/// predict it. Equal seeds give equal stories.
[[nodiscard]] std::string generate_text(std::size_t size, std::uint64_t seed);

/// Divides a text into windows of `context` tokens that do not overlap.
class Windows {
 public:
  /// The text must outlive this object.
  Windows(std::span<const char> text, std::size_t context) : text_(text), context_(context) {}

  /// The number of windows. The byte after each window exists: it is the window's last target.
  [[nodiscard]] std::int64_t count() const {
    return text_.empty() ? 0 : static_cast<std::int64_t>((text_.size() - 1) / context_);
  }
  [[nodiscard]] Batch batch(std::span<const std::int64_t> windows) const;

 private:
  std::span<const char> text_;
  std::size_t context_;
};

}  // namespace gpt
