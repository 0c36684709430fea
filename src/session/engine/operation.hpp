// SPDX-License-Identifier: Apache-2.0
// One operation submitted on this rank, from the call until its future is done.
//
// The user's thread writes it before the queue takes it, the driver from then until it is done, and
// the user's threads read it afterwards. The queue's lock hands it to the driver, `done_` hands it
// back; so nothing else in it is atomic.
#pragma once

#include <atomic>
#include <cmath>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.hpp"
#include "base/descriptor.hpp"
#include "base/key.hpp"
#include "diagnostics/recorder.hpp"
#include "kolo/tensor.hpp"

namespace kolo::internal::session {

class Engine;

/// A request of the user, ready to be submitted.
struct Submission {
  std::string name{};  // "": none
  SetId set = world_set;
  Descriptor descriptor{};
  std::vector<backend::BatchTensor> members{};  // one for each tensor
  // Called by the driver, before the operation is done, with the number that answers it: the set
  // that was made, or the last rank to join.
  std::function<void(std::int64_t)> on_answer{};

  /// As if new, but that it keeps its memory for the next submission.
  void clear() {
    name.clear();
    set = world_set;
    std::vector<TensorSpec> tensors = std::move(descriptor.tensors);
    tensors.clear();
    descriptor = Descriptor{};
    descriptor.tensors = std::move(tensors);
    members.clear();
    on_answer = nullptr;
  }
};

/// Also the signs of zeros.
[[nodiscard]] inline bool is_same(double a, double b) {
  return a == b && std::signbit(a) == std::signbit(b);
}

/// An allreduce of one tensor in place, as the caller passes it.
struct Repetition {
  const std::string& name;
  SetId set;
  const TensorView& tensor;
  ReduceOp op;
  double prescale;
  double postscale;
  Compression compression;
  AverageOver average_over;
  bool alone;
  std::int64_t step;

  /// True if it would be described in the same way, but for the step.
  [[nodiscard]] bool is_described_by(const Descriptor& descriptor) const {
    return descriptor.type == OperationType::allreduce && descriptor.tensors.size() == 1 &&
           descriptor.device.type == tensor.device().type &&
           descriptor.tensors.front().dtype == tensor.dtype() &&
           descriptor.tensors.front().shape == tensor.shape() && descriptor.op == op &&
           is_same(descriptor.prescale, prescale) && is_same(descriptor.postscale, postscale) &&
           descriptor.compression == compression && descriptor.average_over == average_over &&
           descriptor.alone == alone;
  }
};

}  // namespace kolo::internal::session

namespace kolo::detail {

/// Shared by its future and the session. It becomes done once each time it is begun. A submission
/// under the same key reuses the object once it has no other owner, so a step that repeats
/// allocates nothing.
class Operation {
 public:
  explicit Operation(std::weak_ptr<internal::session::Engine> engine)
      : engine_(std::move(engine)) {}

  /// Takes all of the submission but its name, and leaves its own memory there in exchange. Only
  /// while it is done, or new, and has no other owner. `version` is new.
  void begin(internal::session::Submission& submission, std::uint64_t version) {
    descriptor_.step = submission.descriptor.step;
    if (descriptor_ != submission.descriptor) version_ = version;
    std::swap(descriptor_, submission.descriptor);  // also if only a zero has another sign
    members_.swap(submission.members);
    if (on_answer_ || submission.on_answer) on_answer_.swap(submission.on_answer);
    restart(/*again=*/false);
  }
  /// True if it was begun in the same way before, but for the step and the address.
  [[nodiscard]] bool is(const internal::session::Repetition& repetition) const {
    return key_.name == repetition.name && key_.set == repetition.set &&
           repetition.is_described_by(descriptor_);
  }
  /// As `begin`.
  void begin_again(const internal::session::Repetition& repetition) {
    descriptor_.step = repetition.step;
    members_.front().input = members_.front().output = repetition.tensor.data();
    restart(/*again=*/true);
  }
  void set_key(internal::Key key) {
    key_ = std::move(key);
    version_ = 0;
  }

  [[nodiscard]] const internal::Key& key() const { return key_; }
  [[nodiscard]] const internal::Descriptor& descriptor() const { return descriptor_; }
  [[nodiscard]] const std::vector<internal::backend::BatchTensor>& members() const {
    return members_;
  }
  /// The same as before if the key and, but for the step, the descriptor are; 0: unknown.
  [[nodiscard]] std::uint64_t version() const { return version_; }
  /// To wait with. Null once its session has ended, and then the operation is done.
  [[nodiscard]] std::shared_ptr<internal::session::Engine> engine() const { return engine_.lock(); }

  /// True if it was begun last by `begin_again`.
  [[nodiscard]] bool begun_again() const { return begun_again_; }

  /// The recorder's data. Used by the driver only.
  [[nodiscard]] internal::diagnostics::Tag& tag() { return tag_; }
  [[nodiscard]] const internal::diagnostics::Tag& tag() const { return tag_; }

  /// Acquires what the driver wrote: the error, the tensors and what `on_answer` has stored.
  [[nodiscard]] bool done() const { return done_.load(std::memory_order_acquire); }
  /// Null if it succeeded. Only once done.
  [[nodiscard]] const std::exception_ptr& error() const { return error_; }

  /// By the driver, once. `answer` is for operations that are answered by a number. The user may
  /// destroy or reuse the operation as soon as it is done: nothing may touch it afterwards.
  void finish(std::exception_ptr error, std::int64_t answer = 0) {
    error_ = std::move(error);
    if (!error_ && on_answer_) on_answer_(answer);
    // After an error they stay: an allocator may own a tensor that the network still reads.
    if (!error_) drop_callbacks();
    done_.store(true, std::memory_order_release);  // the last access: see above
  }

 private:
  void restart(bool again) {
    begun_again_ = again;
    error_ = nullptr;
    // Relaxed: this thread alone holds it, and the queue's lock publishes it to the driver.
    done_.store(false, std::memory_order_relaxed);
  }
  /// Callbacks hold tensors and GPU events of the user. They are released now rather than when the
  /// object is reused, which may be never. Most operations have none, so that is asked first.
  void drop_callbacks() {
    if (on_answer_) on_answer_ = nullptr;
    if (descriptor_.device.type != DeviceType::cpu)
      for (internal::backend::BatchTensor& member : members_) member.ready = nullptr;
    if (!internal::traits_of(descriptor_.type).allocates) return;
    for (internal::backend::BatchTensor& member : members_) member.allocate = nullptr;
  }

  std::atomic<bool> done_{true};  // until it is begun
  bool begun_again_ = false;
  internal::Key key_;
  internal::Descriptor descriptor_{};
  std::uint64_t version_ = 0;
  std::vector<internal::backend::BatchTensor> members_{};
  std::function<void(std::int64_t)> on_answer_{};
  std::weak_ptr<internal::session::Engine> engine_;  // a future does not keep the session alive
  std::exception_ptr error_;
  internal::diagnostics::Tag tag_{};
};

}  // namespace kolo::detail
