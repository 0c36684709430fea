// SPDX-License-Identifier: Apache-2.0
// Checks the arguments of each collective and submits it (kolo/detail/collectives.hpp).
#include <fmt/format.h>

#include <cstdint>
#include <cstdlib>
#include <limits>
#include <utility>

#include "base/format.hpp"
#include "kolo/detail/submission_burst.hpp"
#include "kolo/session.hpp"
#include "session/api/request.hpp"
#include "session/engine/burst.hpp"
#include "session/engine/presence.hpp"
#include "session/job/job.hpp"

namespace kolo::detail {

using namespace internal;
namespace {

using session::Request;
using RowCounts = std::vector<std::int64_t>;

void require_group(const Request& request, std::size_t tensors) {
  if (tensors == 0) request.refuse("a group needs at least one tensor");
}

/// The divisor in the descriptor. Operators other than the average ignore `average_over`, so their
/// divisor is the same whatever its value: a difference between ranks must not cause a mismatch.
template <typename Options>
AverageOver divisor_of(const Options& options) {
  return options.op == ReduceOp::average ? options.average_over : AverageOver::all;
}

template <typename Options>
void describe_allreduce(Request& request, const Options& options, std::int64_t step) {
  request.set_reduction(options);
  request.set_divisor(divisor_of(options));
  request.descriptor().step = step;
}

/// The fast path of training loops: a submission that repeats an earlier one is not checked again.
/// Returns null for any other submission.
template <typename Options>
session::OperationPtr submit_again(const TensorView& tensor, const Options& options, bool alone,
                                   std::int64_t step, bool waits) {
  if (options.name.empty() || tensor.data() == nullptr) return nullptr;
  const session::EngineInUse engine(OperationType::allreduce, options.name);
  const SetId set =
      engine->process_sets()
          .find_for_member(options.process_set, OperationType::allreduce, options.name)
          .id;
  session::Repetition repetition{options.name,
                                 set,
                                 tensor,
                                 options.op,
                                 options.prescale,
                                 options.postscale,
                                 options.compression,
                                 divisor_of(options),
                                 alone,
                                 step};
  if (tensor.device().type != DeviceType::cpu) {
    if (!engine->expects(repetition)) return nullptr;
    repetition.ready =
        session::mark_tensor(*engine, OperationType::allreduce, options.name, tensor.device());
    repetition.device = session::device_of(OperationType::allreduce, *repetition.ready);
  }
  return engine->submit_again(repetition, waits);
}

bool is_in_place(const AllreduceCall& call) {
  return call.input.data() == call.output.data() && call.input.dtype() == call.output.dtype() &&
         call.input.device() == call.output.device() && call.input.shape() == call.output.shape();
}

/// The number of rows that a reducescatter of `rows` rows leaves on this rank.
std::int64_t own_rows(const Request& request, std::int64_t rows) {
  return reducescatter_rows(rows, request.set().own_place,
                            static_cast<int>(request.set().ranks.size()));
}

void add_reducescatter(Request& request, const ConstTensorView& input, const TensorView& output) {
  if (input.shape().dimensions() == 0) request.refuse("a scalar has no rows to be shared");
  request.add_rows(input, /*any_rows=*/false, output.data(), nullptr);
  request.check(output);
  const session::Rows rows = session::rows_of(input.shape());
  const std::int64_t own = own_rows(request, rows.rows);
  if (output.dtype() != input.dtype() || output.device() != input.device() ||
      output.elements() != own * rows.row_elements)
    request.refuse(fmt::format("the output must hold {} rows of {} {} elements, it is {} {}", own,
                               rows.row_elements, to_string(input.dtype()),
                               to_string(output.dtype()), to_string(output.shape())));
}

RowCounts equal_counts(const Request& request, std::int64_t rows) {
  const auto members = static_cast<std::int64_t>(request.set().ranks.size());
  if (rows % members != 0)
    request.refuse(fmt::format("{} rows cannot be sent in equal parts to {} ranks; give counts",
                               rows, members));
  return RowCounts(static_cast<std::size_t>(members), rows / members);
}

void check_counts(const Request& request, const RowCounts& counts, std::int64_t rows) {
  if (counts.size() != request.set().ranks.size())
    request.refuse(
        fmt::format("{} counts for {} ranks", counts.size(), request.set().ranks.size()));
  std::int64_t sum = 0;
  for (const std::int64_t count : counts) {
    if (count < 0) request.refuse(fmt::format("count {} is negative", count));
    // Compared before the addition, because the sum of absurd counts would overflow.
    if (count > std::numeric_limits<std::int64_t>::max() - sum)
      request.refuse(fmt::format("the counts add up to more than the {} rows of the tensor", rows));
    sum += count;
  }
  if (sum != rows)
    request.refuse(fmt::format("the counts add up to {}, the tensor has {} rows", sum, rows));
}

}  // namespace

std::shared_ptr<Operation> submit(const AllreduceCall& call, bool waits) {
  if (is_in_place(call))
    if (auto again = submit_again(call.output, call.options, false, call.step, waits)) return again;
  Request request(OperationType::allreduce, call.options);
  request.add(call.input, call.output);
  describe_allreduce(request, call.options, call.step);
  return std::move(request).submit(waits);
}

std::shared_ptr<Operation> submit(const GroupedAllreduceCall& call, bool waits) {
  const bool alone = call.options.fuse_exactly;
  if (call.tensors.size() == 1)
    if (auto again = submit_again(call.tensors.front(), call.options, alone, call.step, waits))
      return again;
  Request request(OperationType::allreduce, call.options);
  require_group(request, call.tensors.size());
  for (const TensorView& tensor : call.tensors) request.add(tensor, tensor);
  request.check_disjoint();
  describe_allreduce(request, call.options, call.step);
  request.descriptor().alone = alone;
  return std::move(request).submit(waits);
}

std::shared_ptr<Operation> submit(const ReducescatterCall& call, bool waits) {
  Request request(OperationType::reducescatter, call.options);
  require_group(request, call.inputs.size());
  if (call.inputs.size() != call.outputs.size())
    request.refuse(
        fmt::format("{} inputs, but {} outputs", call.inputs.size(), call.outputs.size()));
  for (std::size_t i = 0; i < call.inputs.size(); ++i)
    add_reducescatter(request, call.inputs[i], call.outputs[i]);
  if (call.outputs.size() > 1) request.check_disjoint(call.outputs);
  if (call.options.op == ReduceOp::adasum) request.refuse("adasum needs whole tensors");
  request.set_reduction(call.options);
  request.descriptor().step = call.step;
  return std::move(request).submit(waits);
}

std::shared_ptr<Operation> submit(const AllgatherCall& call, bool waits) {
  Request request(OperationType::allgather, call.options);
  require_group(request, call.tensors.size());
  if (call.tensors.size() != call.allocators.size())
    request.refuse(
        fmt::format("{} tensors, but {} allocators", call.tensors.size(), call.allocators.size()));
  for (std::size_t i = 0; i < call.tensors.size(); ++i) {
    if (!call.allocators[i]) request.refuse("there is no allocator");
    request.add_rows(call.tensors[i], /*any_rows=*/true, nullptr, call.allocators[i]);
  }
  return std::move(request).submit(waits);
}

std::shared_ptr<Operation> submit(const BroadcastCall& call, bool waits) {
  Request request(OperationType::broadcast, call.options);
  request.add(call.input, call.output);
  request.set_root(call.root);
  return std::move(request).submit(waits);
}

std::shared_ptr<Operation> submit(const StringBroadcastCall& call, bool waits) {
  Request request(OperationType::broadcast_string, call.options);
  request.add_text(call.text);
  request.set_root(call.root);
  return std::move(request).submit(waits);
}

std::shared_ptr<Operation> submit(const AlltoallCall& call, bool waits) {
  Request request(OperationType::alltoall, call.options);
  if (call.tensor.shape().dimensions() == 0) request.refuse("a scalar has no rows to be sent");
  if (!call.allocate) request.refuse("there is no allocator");
  request.add_rows(call.tensor, /*any_rows=*/true, nullptr, call.allocate);
  const std::int64_t rows = request.member().rows;
  RowCounts counts = call.counts != nullptr ? *call.counts : equal_counts(request, rows);
  check_counts(request, counts, rows);
  request.member().counts = std::move(counts);
  return std::move(request).submit(waits);
}

std::shared_ptr<Operation> submit(const BarrierCall& call, bool waits) {
  return Request(OperationType::barrier, call.options).submit(waits);
}

std::shared_ptr<Operation> submit(const JoinCall& call, bool waits) {
  Request request(OperationType::join, "", world());
  request.on_answer([&last = call.last_rank](std::int64_t rank) {
    last = static_cast<int>(rank);
    session::begin_step_epoch();
  });
  return std::move(request).submit(waits);
}

std::int64_t step_epoch() noexcept { return session::step_epoch(); }

std::int64_t note_passes(std::int64_t passes) noexcept { return session::note_passes(passes); }
void note_failed_pass(bool failed) noexcept { session::note_failed_pass(failed); }

SubmitsFor::SubmitsFor(bool for_another) noexcept
    : before_(std::exchange(session::Presence::submits_for_another(), for_another)) {}

SubmitsFor::~SubmitsFor() { session::Presence::submits_for_another() = before_; }

SubmissionBurst::SubmissionBurst(std::optional<StreamInUse> stream)
    : burst_(session::Burst::of_this_thread() == nullptr ? std::make_unique<session::Burst>(stream)
                                                         : nullptr) {}

SubmissionBurst::~SubmissionBurst() = default;

int local_slot() {
  const char* const slot = std::getenv("LOCAL_RANK");
  return slot != nullptr && session::this_job().membership.is_elastic() ? std::atoi(slot)
                                                                        : local_rank();
}

bool agreements_are_deferred() noexcept { return session::agreements_are_deferred(); }

std::int64_t own_reducescatter_rows(std::int64_t rows, const ProcessSet& set) {
  return own_rows(Request(OperationType::reducescatter, "", set), rows);
}

}  // namespace kolo::detail
