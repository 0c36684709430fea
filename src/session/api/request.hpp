// SPDX-License-Identifier: Apache-2.0
// From the arguments of a collective to a submission: checked, described, not yet submitted.
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

/// How a tensor is cut into rows: slices of the first dimension; a scalar is one row.
struct Rows {
  std::int64_t rows;
  std::int64_t row_elements;
};
[[nodiscard]] Rows rows_of(const Shape& shape);

/// A submission in the making. Its memory is kept for the next one of this thread.
struct KeepForNext {
  void operator()(Submission* submission) const;
};
using Draft = std::unique_ptr<Submission, KeepForNext>;
[[nodiscard]] Draft make_draft();

/// One operation in the making. Everything here throws InvalidArgument, which names the operation
/// and this rank; nothing is submitted then.
class Request {
 public:
  /// Throws NotInitialized; InvalidArgument if this rank is no member of the set.
  Request(OperationType type, const std::string& name, const ProcessSet& set);
  /// With a name and a set from the options of a collective.
  template <typename Options>
  Request(OperationType type, const Options& options)
      : Request(type, options.name, options.process_set) {}

  [[noreturn]] void refuse(std::string_view why) const;

  [[nodiscard]] const ProcessSets::View& set() const { return set_; }
  [[nodiscard]] Descriptor& descriptor() { return draft_->descriptor; }

  /// Refuses a tensor whose shape, dtype or memory cannot be.
  void check(const ConstTensorView& tensor) const;
  /// A tensor that is combined or copied element by element. `output` may be the input.
  void add(const ConstTensorView& input, const TensorView& output);
  /// A tensor of which rows travel; ranks may differ in their number if `any_rows`.
  void add_rows(const ConstTensorView& input, bool any_rows, void* output, Allocator allocate);
  /// After the tensors of a group were added: refuses two that are reduced in the same memory.
  void check_disjoint() const;
  /// As above, of tensors whose rows travel, and of one's output and another's input.
  void check_disjoint(std::span<const TensorView> outputs) const;
  void add_text(std::string& text);
  /// The member that was added last.
  [[nodiscard]] backend::BatchTensor& member() { return draft_->members.back(); }

  /// After the tensors were added.
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
  [[nodiscard]] std::string in_words() const;  // `allreduce "x" on rank 1`
  void check_reduction();
  void add_spec(const ConstTensorView& tensor, const Shape& shape);
  /// Tensors on a GPU may be touched after what the caller's stream was given so far.
  void mark(Device device);

  EngineInUse engine_;
  Draft draft_ = make_draft();
  ProcessSets::View set_;
  std::int64_t extent_ = 0;                                 // of the tensors so far
  Device device_{};                                         // of the first tensor
  std::shared_ptr<const backend::gpu::ReadyMark> ready_{};  // null for the CPU
};

}  // namespace kolo::internal::session
