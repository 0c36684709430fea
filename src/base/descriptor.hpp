// What one rank asks for: everything about an operation that all ranks must agree on.
#pragma once

#include <cstdint>

#include "kolo/collectives.hpp"
#include "kolo/tensor.hpp"

namespace kolo {

enum class OperationType : std::uint8_t { allreduce, broadcast, broadcast_text, barrier };

/// Fields that mean nothing to an operation keep their defaults, so that `==` is what must match.
struct Descriptor {
  OperationType type = OperationType::barrier;
  DType dtype = DType::u8;
  Shape shape{};
  ReduceOp op = ReduceOp::sum;
  int root = -1;
  double prescale = 1.0;
  double postscale = 1.0;
  Device device{};
  std::int64_t step = 0;  // of the optimizer that submitted it

  friend bool operator==(const Descriptor&, const Descriptor&) = default;
};

}  // namespace kolo
