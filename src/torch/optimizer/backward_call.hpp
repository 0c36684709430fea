// SPDX-License-Identifier: Apache-2.0
// The calls of backward(): their beginning, and the passes of optimizers that end with them.
#pragma once

#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/csrc/autograd/function.h>

#include <cstddef>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "training/optimizer/pass_reducer.hpp"

namespace kolo::internal {

/// Nodes of an autograd graph, with their places in an order in which backward may come to them.
using GraphNodes = std::unordered_map<const ::torch::autograd::Node*, std::size_t>;

/// An optimizer's part in calls of backward(). Called on the thread that calls backward().
class BackwardPart {
 public:
  virtual ~BackwardPart() = default;
  /// Called before each call of backward() that is not nested in another one. The call need not
  /// involve the optimizer.
  virtual void before_backward() = 0;
  /// Called when all gradients of the pass have accumulated. Returns the reducer with which the
  /// pass is to end; null if it reduces nothing. If it throws, `fail_pass` follows.
  [[nodiscard]] virtual PassReducer* check_pass() = 0;
  /// Called after the pass has ended. Throws its error.
  virtual void end_pass() = 0;
  /// Called in place of the last two functions if backward has thrown.
  virtual void fail_pass() noexcept = 0;
  /// Called if backward has thrown before it accumulated a gradient of this optimizer. `reached`
  /// are the nodes that backward would have come to. The other ranks come to them too, so a pass
  /// that would have reduced fails here as if it had begun.
  virtual void fail_unbegun_pass(const GraphNodes& reached) noexcept = 0;
  /// True if these two functions wait for the other ranks: then those of the other parts come
  /// first.
  [[nodiscard]] virtual bool fails_slowly() const { return false; }
  /// The place in the graph of the first gradient of this part.
  [[nodiscard]] virtual std::size_t place_in(const GraphNodes& /*reached*/) const { return 0; }
  /// Called after the failure of all parts. May wait for what the other ranks do last.
  virtual void end_failed_pass() noexcept {}
};

/// A call of backward() with all calls that are nested in it, as in gradient checkpointing. On one
/// rank a nested call may accumulate first, on another rank the outer one. So they are one pass of
/// an optimizer, which ends with the outer call. LibTorch hands this object to all threads that
/// work on the call.
class BackwardCall : public c10::DebugInfoBase {
 public:
  /// Makes LibTorch report calls of backward(), and calls `part` from now on. Thread-safe.
  static void watch(const std::weak_ptr<BackwardPart>& part);
  /// The call that this thread works for. Throws InvalidArgument if LibTorch has not reported it.
  static BackwardCall& current();
  /// True if this thread works for a call that LibTorch has reported.
  [[nodiscard]] static bool is_running() { return find() != nullptr; }

  /// Adds a pass, which then ends with this call. Throws InvalidArgument if the call has ended.
  /// Thread-safe.
  void add(std::weak_ptr<BackwardPart> part);
  /// True on the thread that has called backward(), and false on LibTorch's own threads.
  [[nodiscard]] bool is_callers_thread() const { return caller_ == std::this_thread::get_id(); }

 private:
  class ReportingEngine;

  /// The call that this thread works for; null if there is none.
  [[nodiscard]] static BackwardCall* find();
  [[nodiscard]] std::vector<std::shared_ptr<BackwardPart>> close();
  void end();
  void fail() noexcept;
  void note_thrown(const ::torch::autograd::edge_list& roots,
                   const ::torch::autograd::edge_list& outputs);

  const std::thread::id caller_ = std::this_thread::get_id();
  std::mutex mutex_{};  // guards the members below
  std::vector<std::weak_ptr<BackwardPart>> parts_{};
  GraphNodes reached_{};  // by this call and nested ones, if they have thrown
  bool is_closed_ = false;
};

}  // namespace kolo::internal
