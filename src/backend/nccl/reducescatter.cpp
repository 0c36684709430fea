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

/// NCCL wants as much for every rank. So the members of one type lie in a buffer rank by rank, each
/// with room for as many rows as the first rank gets, which gets the most.
class Reducescatter : public GpuExecution {
 public:
  Reducescatter(const Context& context, Batch given)
      : GpuExecution(context, std::move(given)), before_(gpu()), after_(gpu()) {
    for (const Member* member : batch().members)
      if (member->elements() > 0) by_type_[member->dtype].push_back(member);
  }

 private:
  /// One call.
  struct Part {
    const void* from = nullptr;
    void* to = nullptr;
    std::int64_t elements = 0;  // for each rank
    DType wire = DType::u8;
    ReductionPlan plan{};
  };

  bool begin() override {
    std::int64_t bytes = 0;
    for (const auto& [dtype, members] : by_type_) bytes += share(dtype, members) * (size() + 1);
    if (bytes > 0) buffer_ = communicator().take_buffer(static_cast<std::size_t>(bytes));
    std::byte* next = buffer_.data();
    for (const auto& [dtype, members] : by_type_) {
      pack(dtype, members, next);
      next += share(dtype, members) * (size() + 1);
    }
    before_.launch(stream());
    for (const Part& part : parts_) ops_.emplace_back(communicator(), part.plan, part.wire);
    return !parts_.empty();
  }

  void call() override {
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      const Part& part = parts_[i];
      library().reduce_scatter(part.from, part.to, part.elements, part.wire, ops_[i].get(), comm(),
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

  [[nodiscard]] std::int64_t elements_of(const Member& member, int rank) const {
    return reducescatter_rows(member.rows, rank, size()) * member.row_elements;
  }

  /// Bytes for each rank on the wire.
  [[nodiscard]] std::int64_t share(DType dtype, const std::vector<const Member*>& members) const {
    std::int64_t bytes = 0;
    for (const Member* member : members)
      bytes += aligned(elements_of(*member, 0) * cuda::bytes_of(wire_of(dtype)));
    return bytes;
  }

  /// The shares of all ranks, then room for the result of this one.
  void pack(DType dtype, const std::vector<const Member*>& members, std::byte* to) {
    const DType wire = wire_of(dtype);
    const std::int64_t each = share(dtype, members);
    std::byte* const result = to + each * size();
    const ReductionPlan plan = plan_reduction(batch(), wire, true);
    std::int64_t offset = 0;
    for (const Member* member : members) {
      const auto* from = static_cast<const std::byte*>(member->input);
      for (int rank = 0; rank < size(); ++rank) {
        const std::int64_t elements = elements_of(*member, rank);
        before_.add({.from = from,
                     .to = to + each * rank + offset,
                     .elements = elements,
                     .scaling = plan.before,
                     .from_type = dtype,
                     .to_type = wire});
        from += elements * cuda::bytes_of(dtype);
      }
      after_.add({.from = result + offset,
                  .to = static_cast<std::byte*>(member->output),
                  .elements = elements_of(*member, index()),
                  .scaling = plan.after,
                  .from_type = wire,
                  .to_type = dtype});
      offset += aligned(elements_of(*member, 0) * cuda::bytes_of(wire));
    }
    parts_.push_back({to, result, each / cuda::bytes_of(wire), wire, plan});
  }

  std::map<DType, std::vector<const Member*>> by_type_{};
  std::vector<Part> parts_{};
  std::deque<OwnedOp> ops_{};
  Communicator::Buffer buffer_{};
  cuda::Transfers before_;
  cuda::Transfers after_;
};

}  // namespace

std::unique_ptr<Execution> make_reducescatter(const Context& context, Batch batch) {
  return std::make_unique<Reducescatter>(context, std::move(batch));
}

}  // namespace kolo::backend::nccl
