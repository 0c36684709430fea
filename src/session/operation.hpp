// One operation submitted on this rank, from the call until its future is done.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.hpp"
#include "base/descriptor.hpp"
#include "diagnostics/recorder.hpp"
#include "negotiation/key.hpp"

namespace kolo::session {

class Engine;

/// What a user asks for.
struct Submission {
  std::string name{};  // "": none
  negotiation::SetId set = negotiation::world_set;
  Descriptor descriptor{};
  std::vector<backend::BatchTensor> members{};    // one for each tensor
  std::function<void(std::int64_t)> on_answer{};  // by the driver, before the operation is done

  /// As if new, but that it keeps memory for the next.
  void clear() {
    name.clear();
    set = negotiation::world_set;
    std::vector<TensorSpec> tensors = std::move(descriptor.tensors);
    tensors.clear();
    descriptor = Descriptor{};
    descriptor.tensors = std::move(tensors);
    members.clear();
    on_answer = nullptr;
  }
};

}  // namespace kolo::session

namespace kolo::detail {

/// Shared by its future and the session. Done once each time it is begun; what is written before is
/// seen by who sees done. Whoever submits under the same key again may get the same object again,
/// once nobody else holds it: so a step that repeats allocates nothing.
class Operation {
 public:
  explicit Operation(std::shared_ptr<session::Engine> engine) : engine_(std::move(engine)) {}

  /// Takes what was submitted, all but its name, and leaves memory of its own in exchange. Only
  /// while it is done, or new, and nobody else looks at it.
  void begin(session::Submission& submission) {
    std::vector<TensorSpec> spare = std::move(descriptor_.tensors);
    descriptor_ = std::move(submission.descriptor);
    submission.descriptor.tensors = std::move(spare);
    members_.swap(submission.members);
    if (on_answer_ || submission.on_answer) on_answer_.swap(submission.on_answer);
    error_ = nullptr;
    done_.store(false, std::memory_order_relaxed);
  }
  void set_key(negotiation::Key key) { key_ = std::move(key); }

  [[nodiscard]] const negotiation::Key& key() const { return key_; }
  [[nodiscard]] const Descriptor& descriptor() const { return descriptor_; }
  [[nodiscard]] const std::vector<backend::BatchTensor>& members() const { return members_; }
  [[nodiscard]] const std::shared_ptr<session::Engine>& engine() const { return engine_; }

  /// The driver's.
  [[nodiscard]] diagnostics::Tag& tag() { return tag_; }
  [[nodiscard]] const diagnostics::Tag& tag() const { return tag_; }

  [[nodiscard]] bool done() const { return done_.load(std::memory_order_acquire); }
  /// Null if it succeeded. Only once done.
  [[nodiscard]] const std::exception_ptr& error() const { return error_; }

  /// By the driver, once. `answer` is of operations that are answered by a number. Afterwards the
  /// operation may be gone.
  void finish(std::exception_ptr error, std::int64_t answer = 0) {
    error_ = std::move(error);
    if (!error_ && on_answer_) on_answer_(answer);
    if (!error_) drop_callbacks();
    done_.store(true, std::memory_order_release);
  }

 private:
  /// What they hold must not wait for the next operation.
  void drop_callbacks() {
    on_answer_ = nullptr;
    if (descriptor_.device.type != DeviceType::cpu)
      for (backend::BatchTensor& member : members_) member.ready = nullptr;
    if (descriptor_.type != OperationType::allgather && descriptor_.type != OperationType::alltoall)
      return;
    for (backend::BatchTensor& member : members_) member.allocate = nullptr;
  }

  negotiation::Key key_;
  Descriptor descriptor_{};
  std::vector<backend::BatchTensor> members_{};
  std::function<void(std::int64_t)> on_answer_{};
  std::shared_ptr<session::Engine>
      engine_;  // lives as long as an operation may have to be waited for
  std::exception_ptr error_;
  diagnostics::Tag tag_{};
  std::atomic<bool> done_{true};  // until it is begun
};

}  // namespace kolo::detail
