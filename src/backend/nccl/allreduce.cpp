#include <utility>

#include "backend/nccl/packed_reduction.hpp"

namespace kolo::backend::nccl {
namespace {

/// Members lie in the buffer one after the other. One that is alone of its type and travels as it
/// is stays where it is.
class Allreduce : public PackedReduction {
 public:
  using PackedReduction::PackedReduction;

 private:
  [[nodiscard]] bool stays(DType dtype, const Members& members) const {
    return members.size() == 1 && wire_of(dtype) == dtype;
  }

  [[nodiscard]] std::int64_t room(DType dtype, const Members& members) const override {
    if (stays(dtype, members)) return 0;
    std::int64_t bytes = 0;
    for (const Member* member : members) bytes += aligned_bytes(member->elements(), wire_of(dtype));
    return bytes;
  }

  [[nodiscard]] Part pack(DType dtype, const Members& members, std::byte* to) override {
    if (stays(dtype, members)) return leave_in_place(*members.front());
    const DType wire = wire_of(dtype);
    Part part{to, to, room(dtype, members) / signed_size_of(wire), wire,
              plan_reduction(batch(), wire, true)};
    for (const Member* member : members) {
      before().add({.from = static_cast<const std::byte*>(member->input),
                    .to = to,
                    .elements = member->elements(),
                    .scaling = part.plan.before,
                    .from_type = dtype,
                    .to_type = wire});
      after().add({.from = to,
                   .to = static_cast<std::byte*>(member->output),
                   .elements = member->elements(),
                   .scaling = part.plan.after,
                   .from_type = wire,
                   .to_type = dtype});
      to += aligned_bytes(member->elements(), wire);
    }
    return part;
  }

  [[nodiscard]] Part leave_in_place(const Member& member) {
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
      before().add(segment(member.input, part.plan.before));
      part.from = output;
    }
    if (!part.plan.after.none()) after().add(segment(output, part.plan.after));
    return part;
  }

  void call(const Part& part, RedOp op) override {
    library().all_reduce(part.from, part.to, part.elements, part.wire, op, comm(), stream());
  }
};

}  // namespace

std::unique_ptr<Execution> make_allreduce(const Context& context, Batch batch) {
  return std::make_unique<Allreduce>(context, std::move(batch));
}

}  // namespace kolo::backend::nccl
