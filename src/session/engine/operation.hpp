// SPDX-License-Identifier: Apache-2.0
// One operation submitted on this rank, from the call until its future is done.
//
// An operation has one owner at a time. The user's thread writes it until the queue takes it; the
// driver then owns it until it is done; afterwards the user's threads read it. The queue's lock
// publishes the operation to the driver, and `done_` publishes the result to the user's threads, so
// no other member is atomic.
#pragma once

#include <atomic>
#include <cmath>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.hpp"
#include "backend/gpu/runtime/completion.hpp"
#include "backend/gpu/runtime/gpu.hpp"
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
  // Called by the driver, before the operation is done, with the operation's result: the number of
  // the new process set, or the last rank to join.
  std::function<void(std::int64_t)> on_answer{};

  /// Resets the submission, but keeps its memory for the next one.
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

/// True if the values are equal, including the signs of zeros: results with a factor of -0 differ
/// from those with 0.
[[nodiscard]] inline bool is_same(double a, double b) {
  return a == b && std::signbit(a) == std::signbit(b);
}

/// An allreduce of one tensor in place, as the caller passes it. Compared with an earlier operation
/// before anything is copied.
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
  std::shared_ptr<const backend::gpu::ReadyMark> ready{};  // null for a tensor of the host
  Device device{};                                         // with a mark: that of the descriptor

  /// True if its descriptor would equal `descriptor`, apart from the step.
  [[nodiscard]] bool is_described_by(const Descriptor& descriptor) const {
    return descriptor.type == OperationType::allreduce && descriptor.tensors.size() == 1 &&
           (ready == nullptr ? descriptor.device.type == tensor.device().type
                             : descriptor.device == device) &&
           descriptor.tensors.front().dtype == tensor.dtype() &&
           descriptor.tensors.front().shape == tensor.shape() && descriptor.op == op &&
           is_same(descriptor.prescale, prescale) && is_same(descriptor.postscale, postscale) &&
           descriptor.compression == compression && descriptor.average_over == average_over &&
           descriptor.alone == alone;
  }
};

}  // namespace kolo::internal::session

namespace kolo::detail {

/// Shared by its future and the session. Each call of `begin` or `begin_again` starts it anew, and
/// `finish` ends it. A later submission under the same key reuses the object once only the queue
/// holds it, so a repeated training step allocates nothing.
class Operation {
 public:
  explicit Operation(std::weak_ptr<internal::session::Engine> engine)
      : engine_(std::move(engine)) {}

  /// Starts the operation of `submission`, whose memory it swaps for its own. The operation must be
  /// done or new, and have no other owner. `version` becomes its version if the descriptor differs
  /// from the last one.
  void begin(internal::session::Submission& submission, std::uint64_t version) {
    descriptor_.step = submission.descriptor.step;
    if (descriptor_ != submission.descriptor) version_ = version;
    // Swap even equal descriptors: a zero in the new one may have another sign.
    std::swap(descriptor_, submission.descriptor);
    members_.swap(submission.members);
    const bool on_gpu = !members_.empty() && members_.front().ready != nullptr;
    stream_ = on_gpu ? members_.front().ready->lasting_stream() : std::nullopt;
    if (on_answer_ || submission.on_answer) on_answer_.swap(submission.on_answer);
    restart(/*again=*/false);
  }
  /// True if `repetition` repeats this operation, apart from the step and the tensor's address.
  [[nodiscard]] bool is(const internal::session::Repetition& repetition) const {
    return key_.name == repetition.name && key_.set == repetition.set &&
           repetition.is_described_by(descriptor_);
  }
  /// As `begin`, for a repetition of this operation: only the step, the address and the mark
  /// change.
  void begin_again(const internal::session::Repetition& repetition) {
    descriptor_.step = repetition.step;
    members_.front().input = members_.front().output = repetition.tensor.data();
    if (repetition.ready != nullptr) {
      members_.front().ready = repetition.ready;
      stream_ = repetition.ready->lasting_stream();
    }
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
  /// A number that changes whenever the key or the descriptor does, apart from the step. 0:
  /// unknown.
  [[nodiscard]] std::uint64_t version() const { return version_; }
  /// The engine to wait with. Null once its session has ended; the operation is then done.
  [[nodiscard]] std::shared_ptr<internal::session::Engine> engine() const { return engine_.lock(); }

  /// True if it was last started by `begin_again`.
  [[nodiscard]] bool begun_again() const { return begun_again_; }

  /// The recorder's data. Used by the driver only.
  [[nodiscard]] internal::diagnostics::Tag& tag() { return tag_; }
  [[nodiscard]] const internal::diagnostics::Tag& tag() const { return tag_; }

  /// Acquire: a caller that sees true also sees the driver's writes, which are the error, the
  /// tensors and the results of `on_answer`.
  [[nodiscard]] bool done() const { return done_.load(std::memory_order_acquire); }
  /// Null if the operation succeeded. Valid once it is done.
  [[nodiscard]] const std::exception_ptr& error() const { return error_; }

  /// The end of the work on the GPU, which the operation may precede; null if it does not. Valid
  /// once it is done.
  [[nodiscard]] const std::shared_ptr<internal::backend::gpu::Completion>& completion() const {
    return completion_;
  }
  /// The stream that was current at the submission, if it is never destroyed.
  [[nodiscard]] std::optional<internal::backend::gpu::StreamHandle> stream() const {
    return stream_;
  }

  /// Called by the driver before `finish`: the GPU is not done.
  void set_completion(std::shared_ptr<internal::backend::gpu::Completion> completion) {
    completion_ = std::move(completion);
  }

  /// Called once by the driver. `answer` goes to `on_answer`. The user may destroy or reuse the
  /// operation as soon as it is done, so the driver may not touch it afterwards.
  void finish(std::exception_ptr error, std::int64_t answer = 0) {
    error_ = std::move(error);
    if (!error_ && on_answer_) on_answer_(answer);
    // After an error the callbacks stay: an allocator may own a tensor that the network still
    // reads. So may a GPU that is not done.
    if (!error_ && completion_ == nullptr) drop_callbacks();
    // Release, for the acquire in `done`. The last access to the operation.
    done_.store(true, std::memory_order_release);
  }

  /// Releases the user's tensors and GPU events that callbacks hold: called at the end, or by the
  /// thread that has made the program's streams wait for the GPU. Reusing the object would release
  /// them too, but may never happen. Most operations have no callbacks, so they skip the loops.
  void drop_callbacks() {
    if (on_answer_) on_answer_ = nullptr;
    if (descriptor_.device.type != DeviceType::cpu)
      for (internal::backend::BatchTensor& member : members_) member.ready = nullptr;
    if (!internal::traits_of(descriptor_.type).allocates) return;
    for (internal::backend::BatchTensor& member : members_) member.allocate = nullptr;
  }

 private:
  void restart(bool again) {
    begun_again_ = again;
    error_ = nullptr;
    completion_ = nullptr;
    // Relaxed: no other thread uses the operation, and the queue's lock publishes it to the driver.
    done_.store(false, std::memory_order_relaxed);
  }
  std::atomic<bool> done_{true};  // false from `begin` to `finish`
  bool begun_again_ = false;
  internal::Key key_;
  internal::Descriptor descriptor_{};
  std::uint64_t version_ = 0;
  std::vector<internal::backend::BatchTensor> members_{};
  std::function<void(std::int64_t)> on_answer_{};
  std::weak_ptr<internal::session::Engine> engine_;  // a future does not keep the session alive
  std::exception_ptr error_;
  std::shared_ptr<internal::backend::gpu::Completion> completion_{};
  std::optional<internal::backend::gpu::StreamHandle> stream_{};
  internal::diagnostics::Tag tag_{};
};

}  // namespace kolo::detail
