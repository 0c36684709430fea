// Text, as bytes, cut into windows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "network.hpp"

namespace gpt {

/// The whole of a file. Throws std::runtime_error if it cannot be read.
[[nodiscard]] std::string read_text(const std::filesystem::path& path);

/// Little stories of about `size` bytes, to train on where there is no text:
///
///     Anna has a red ball. Anna gives the red ball to Ben. Now Ben has the red ball.
///
/// Every byte of the third sentence is settled by the first two, so a network must look back to
/// know it. The same for the same seed.
[[nodiscard]] std::string generate_text(std::size_t size, std::uint64_t seed);

/// A text in windows of `context` tokens that do not overlap.
class Windows {
 public:
  /// The text must outlive this.
  Windows(std::span<const char> text, std::size_t context) : text_(text), context_(context) {}

  /// Each window has a byte behind it, which is its last target.
  [[nodiscard]] std::int64_t count() const {
    return text_.empty() ? 0 : static_cast<std::int64_t>((text_.size() - 1) / context_);
  }
  [[nodiscard]] Batch batch(std::span<const std::int64_t> windows) const;

 private:
  std::span<const char> text_;
  std::size_t context_;
};

}  // namespace gpt
