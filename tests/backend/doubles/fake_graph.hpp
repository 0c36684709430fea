// SPDX-License-Identifier: Apache-2.0
// A CUDA graph of the double: what captured streams were given.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "backend/gpu/runtime/runtime.hpp"

namespace kolo::internal::backend {

/// Keeps only the order that streams and events required: a replay does the work in a
/// random order that they allow. Guarded by the mutex of its FakeCuda while it is captured, then
/// unchanged.
class FakeGraph {
 public:
  using Work = std::function<bool()>;  // false: not done yet
  using Stream = std::uintptr_t;
  /// How much of each stream's work comes before something.
  using Clock = std::map<Stream, std::size_t>;

  FakeGraph(Stream origin, gpu::CaptureMode mode) : origin_(origin), mode_(mode) {
    clocks_[origin] = {};
  }

  [[nodiscard]] gpu::CaptureMode mode() const { return mode_; }
  [[nodiscard]] Stream origin() const { return origin_; }
  [[nodiscard]] bool has_ended() const { return has_ended_; }
  [[nodiscard]] const Clock& clock(Stream stream) { return clocks_[stream]; }
  [[nodiscard]] std::size_t size() const { return nodes_.size(); }

  /// Later work of the stream comes after this. A stream's first call makes it a part of the
  /// capture.
  void join(Stream stream, const Clock& after);
  /// `work` is copied for each replay.
  void add(Stream stream, Work work);
  /// Ends the capture. False if there is work for which the first stream does not wait.
  [[nodiscard]] bool end();

  /// The work of one replay.
  [[nodiscard]] Work replay(std::uint64_t seed) const;

 private:
  struct Node {
    Stream stream;
    Clock after;
    Work work;
  };
  class Replay;

  Stream origin_;
  gpu::CaptureMode mode_;
  bool has_ended_ = false;
  std::map<Stream, Clock> clocks_{};
  std::vector<Node> nodes_{};  // in the order of the calls
};

}  // namespace kolo::internal::backend
