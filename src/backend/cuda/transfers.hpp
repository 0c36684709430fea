// Enqueues copies of many tensors as one launch.
#pragma once

#include <vector>

#include "backend/cuda/gpu.hpp"

namespace kolo::backend::cuda {

/// Gathers segments and launches the kernel once for all of them. Lives until the stream has got
/// there, or is abandoned.
class Transfers {
 public:
  explicit Transfers(Gpu& gpu) : gpu_(gpu) {}

  /// Empty segments are dropped.
  void add(const Segment& segment);
  /// Once. Nothing is launched if there is nothing to move.
  void launch(StreamHandle stream);
  /// The GPU may not be done.
  void abandon();

 private:
  Gpu& gpu_;
  std::vector<Segment> segments_{};
  BlockPool<PinnedMemory>::Block staged_{};
  BlockPool<DeviceMemory>::Block table_{};
};

}  // namespace kolo::backend::cuda
