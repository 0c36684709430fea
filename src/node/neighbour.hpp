// One rank of the host, as the others reach it.
#pragma once

#include <cstddef>
#include <span>

#include "node/doorbell.hpp"

namespace kolo::node {

/// Owns nothing.
struct Neighbour {
  std::byte* memory;  // a part of its segment, aligned to cache lines, zeros at first
  const Doorbell* bell;
  std::span<std::byte> heap{};  // what it shares of its tensors; may be empty
};

}  // namespace kolo::node
