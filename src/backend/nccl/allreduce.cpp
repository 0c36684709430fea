#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "backend/cuda/transfers.hpp"
#include "backend/nccl/execution.hpp"
#include "backend/nccl/reduction.hpp"
#include "fusion/pack.hpp"

namespace kolo::backend::nccl {
namespace {

constexpr std::int64_t alignment = 16;

std::int64_t aligned(std::int64_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

/// The members of one type are one call. They lie in a buffer one after the other, aligned, and are
/// packed and unpacked together with those of the other types. A member that is alone and travels
/// as it is stays where it is.
class Allreduce : public GpuExecution {
 public:
  Allreduce(const Context& context, Batch given)
      : GpuExecution(context, std::move(given)), before_(gpu()), after_(gpu()) {
    for (const Member* member : batch().members)
      if (member->elements() > 0) by_type_[member->dtype].push_back(member);
  }

 private:
  /// One call.
  struct Part {
    const void* from = nullptr;
    void* to = nullptr;
    std::int64_t elements = 0;
    DType wire = DType::u8;
    ReductionPlan plan{};
  };

  bool begin() override {
    std::int64_t bytes = 0;
    for (const auto& [dtype, members] : by_type_)
      if (!stays(dtype, members)) bytes += wire_bytes(dtype, members);
    if (bytes > 0) buffer_ = communicator().take_buffer(static_cast<std::size_t>(bytes));
    std::byte* next = buffer_.data();
    for (const auto& [dtype, members] : by_type_) {
      if (stays(dtype, members)) {
        leave_in_place(*members.front());
      } else {
        pack(dtype, members, next);
        next += wire_bytes(dtype, members);
      }
    }
    before_.launch(stream());
    for (const Part& part : parts_) ops_.emplace_back(communicator(), part.plan, part.wire);
    return !parts_.empty();
  }

  void call() override {
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      const Part& part = parts_[i];
      library().all_reduce(part.from, part.to, part.elements, part.wire, ops_[i].get(), comm(),
                           stream());
    }
  }

  void end() override {
    ops_.clear();
    after_.launch(stream());
  }

  void abandon() override {
    buffer_.abandon();
    before_.abandon();
    after_.abandon();
  }

  [[nodiscard]] DType wire_of(DType dtype) const {
    return fusion::wire_type(dtype, batch().kind.compression);
  }

  [[nodiscard]] bool stays(DType dtype, const std::vector<const Member*>& members) const {
    return members.size() == 1 && wire_of(dtype) == dtype;
  }

  [[nodiscard]] std::int64_t wire_bytes(DType dtype,
                                        const std::vector<const Member*>& members) const {
    std::int64_t bytes = 0;
    for (const Member* member : members)
      bytes += aligned(member->elements() * cuda::bytes_of(wire_of(dtype)));
    return bytes;
  }

  void leave_in_place(const Member& member) {
    Part part{member.input, member.output, member.elements(), member.dtype,
              plan_reduction(batch(), member.dtype, false)};
    auto* const output = static_cast<std::byte*>(member.output);
    const auto segment = [&](const void* from, const cuda::Scaling& scaling) {
      return cuda::Segment{.from = static_cast<const std::byte*>(from),
                           .to = output,
                           .elements = part.elements,
                           .scaling = scaling,
                           .from_type = member.dtype,
                           .to_type = member.dtype};
    };
    if (!part.plan.before.none() || member.dtype == DType::boolean) {
      before_.add(segment(member.input, part.plan.before));
      part.from = output;
    }
    if (!part.plan.after.none()) after_.add(segment(output, part.plan.after));
    parts_.push_back(part);
  }

  void pack(DType dtype, const std::vector<const Member*>& members, std::byte* to) {
    const DType wire = wire_of(dtype);
    Part part{to, to, 0, wire, plan_reduction(batch(), wire, true)};
    for (const Member* member : members) {
      before_.add({.from = static_cast<const std::byte*>(member->input),
                   .to = to,
                   .elements = member->elements(),
                   .scaling = part.plan.before,
                   .from_type = dtype,
                   .to_type = wire});
      after_.add({.from = to,
                  .to = static_cast<std::byte*>(member->output),
                  .elements = member->elements(),
                  .scaling = part.plan.after,
                  .from_type = wire,
                  .to_type = dtype});
      to += aligned(member->elements() * cuda::bytes_of(wire));
    }
    part.elements = (to - static_cast<std::byte*>(part.to)) / cuda::bytes_of(wire);
    parts_.push_back(part);
  }

  std::map<DType, std::vector<const Member*>> by_type_{};
  std::vector<Part> parts_{};
  std::deque<OwnedOp> ops_{};
  Communicator::Buffer buffer_{};
  cuda::Transfers before_;
  cuda::Transfers after_;
};

}  // namespace

std::unique_ptr<Execution> make_allreduce(const Context& context, Batch batch) {
  return std::make_unique<Allreduce>(context, std::move(batch));
}

}  // namespace kolo::backend::nccl
