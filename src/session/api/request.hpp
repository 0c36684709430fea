// SPDX-License-Identifier: Apache-2.0
// Turns the arguments of a collective into a submission, and checks them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "kolo/collectives.hpp"
#include "session/api/current.hpp"

namespace kolo::internal::session {

/// The rows of a tensor, which are its slices along the first dimension. A scalar is one row.
struct Rows {
  std::int64_t rows;
  std::int64_t row_elements;
};
[[nodiscard]] Rows rows_of(const Shape& shape);

/// The deleter of a submission in preparation: keeps the memory for the thread's next one.
struct KeepForNext {
  void operator()(Submission* submission) const;
};
using Draft = std::unique_ptr<Submission, KeepForNext>;
[[nodiscard]] Draft make_draft();

/// Marks the point on the current stream after which a tensor of the operation may be accessed.
/// Throws InvalidArgument if the GPU cannot be used or the operation cannot be captured, and
/// BackendError; both name the operation.
[[nodiscard]] std::shared_ptr<const backend::gpu::ReadyMark> mark_tensor(Engine& engine,
                                                                         OperationType type,
                                                                         const std::string& name,
                                                                         Device device);

/// The device in the descriptor of an operation whose tensors have this mark.
[[nodiscard]] Device device_of(OperationType type, const backend::gpu::ReadyMark& mark);

/// One operation in preparation. All functions throw InvalidArgument, which names the operation and
/// this rank, for arguments that cannot be used; nothing is submitted then.
class Request {
 public:
  /// Throws NotInitialized if there is no session; InvalidArgument if this rank is no member of the
  /// set.
  Request(OperationType type, const std::string& name, const ProcessSet& set);
  /// The same, with the name and the set from the options of a collective.
  template <typename Options>
  Request(OperationType type, const Options& options)
      : Request(type, options.name, options.process_set) {}

  [[noreturn]] void refuse(std::string_view why) const;

  [[nodiscard]] const ProcessSets::View& set() const { return set_; }
  [[nodiscard]] Descriptor& descriptor() { return draft_->descriptor; }

  /// Refuses a tensor whose shape, dtype or memory is invalid.
  void check(const ConstTensorView& tensor) const;
  /// Adds a tensor that is reduced or copied element by element. `output` may be the input.
  void add(const ConstTensorView& input, const TensorView& output);
  /// Adds a tensor whose rows are distributed among ranks. With `any_rows`, ranks may have
  /// different numbers of rows.
  void add_rows(const ConstTensorView& input, bool any_rows, void* output, Allocator allocate);
  /// Refuses a group in which two outputs of `add` share memory. Call it after all tensors are
  /// added.
  void check_disjoint() const;
  /// The same for a group of `add_rows`. Also refuses an output that shares memory with an input.
  void check_disjoint(std::span<const TensorView> outputs) const;
  void add_text(std::string& text);
  /// The member that was added last.
  [[nodiscard]] backend::BatchTensor& member() { return draft_->members.back(); }

  /// Describes a reduction. Call it after all tensors are added.
  template <typename Options>
  void set_reduction(const Options& options) {
    Descriptor& described = descriptor();
    described.op = options.op;
    described.prescale = options.prescale;
    described.postscale = options.postscale;
    described.compression = options.compression;
    check_reduction();
  }
  void set_divisor(AverageOver over);
  void set_root(int root);
  void on_answer(std::function<void(std::int64_t)> deliver) {
    draft_->on_answer = std::move(deliver);
  }

  /// `waits`: the caller waits for the operation at once.
  [[nodiscard]] OperationPtr submit(bool waits) &&;

 private:
  void check_reduction();
  void add_spec(const ConstTensorView& tensor, const Shape& shape);
  /// Records the device, and for a GPU an event: Kolo touches the tensors only after the work that
  /// is on the caller's stream already.
  void mark(Device device);

  EngineInUse engine_;
  Draft draft_ = make_draft();
  ProcessSets::View set_;
  std::int64_t extent_ = 0;                                 // the sum over all tensors so far
  Device device_{};                                         // the device of the first tensor
  std::shared_ptr<const backend::gpu::ReadyMark> ready_{};  // null for the CPU
};

}  // namespace kolo::internal::session
