#include "backend/batch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <string>

#include "base/dtype.hpp"
#include "base/format.hpp"
#include "fusion/pack.hpp"
#include "kolo/error.hpp"

namespace kolo::backend {
namespace {

// So that slices are aligned.
constexpr std::int64_t granularity = 16;

std::int64_t rows_of(const Member& member, int index, int size) {
  return reducescatter_rows(member.rows, index, size);
}

}  // namespace

int index_of(int rank, const Batch& batch) {
  const auto found = std::ranges::find(batch.ranks, rank);
  if (found == batch.ranks.end())
    throw InvalidArgument(fmt::format("rank {} is given a batch of others", rank));
  return static_cast<int>(found - batch.ranks.begin());
}

int root_index(const Batch& batch) {
  const auto found = std::ranges::find(batch.ranks, batch.kind.root);
  if (found == batch.ranks.end())
    throw InvalidArgument(
        fmt::format("the root of a broadcast, rank {}, takes no part in it", batch.kind.root));
  return static_cast<int>(found - batch.ranks.begin());
}

std::string& text_of(const Batch& batch) {
  if (batch.members.size() != 1 || batch.members.front()->text == nullptr)
    throw InvalidArgument("a text broadcast takes one text");
  return *batch.members.front()->text;
}

void check(const Batch& batch) {
  if (batch.kind.device.type != DeviceType::cpu)
    throw InvalidArgument(fmt::format("\"{}\" cannot be executed: the memory must be on the CPU",
                                      to_string(batch.kind)));
  for (const int rank : batch.ranks)
    if (!std::ranges::binary_search(batch.set, rank))
      throw InvalidArgument(fmt::format("rank {} is not of the process set", rank));
  for (const Member* member : batch.members) {
    switch (batch.kind.type) {
      case OperationType::allreduce:
      case OperationType::reducescatter:
        reduction::check_arithmetic(batch.kind.op, member->dtype);
        break;
      case OperationType::alltoall:
        if (member->counts.size() != batch.ranks.size())
          throw InvalidArgument(fmt::format("an alltoall among {} ranks has {} counts",
                                            batch.ranks.size(), member->counts.size()));
        [[fallthrough]];
      case OperationType::allgather:
        if (member->allocate == nullptr) throw InvalidArgument("there is nothing to allocate with");
        break;
      default: break;
    }
  }
}

reduction::Arithmetic arithmetic_of(const Batch& batch, DType wire) {
  return {.op = batch.kind.op,
          .dtype = wire,
          .prescale = batch.kind.prescale,
          .postscale = batch.kind.postscale,
          .divisor = batch.kind.op == ReduceOp::average ? batch.divisor : 1};
}

std::byte* allocate(const Batch& batch, const Member& member, std::span<const std::int64_t> rows) {
  std::vector<std::int64_t> rows_of_set(batch.set.size(), 0);
  std::int64_t elements = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto place = std::ranges::find(batch.set, batch.ranks[i]) - batch.set.begin();
    rows_of_set[static_cast<std::size_t>(place)] = rows[i];
    elements += rows[i] * member.row_elements;
  }
  void* memory = nullptr;
  std::string reason = "the allocator gave none";
  try {
    memory = member.allocate(rows_of_set);
  } catch (const std::exception& error) {
    memory = nullptr;
    reason = error.what();
  }
  if (memory == nullptr && elements > 0)
    throw BackendError(fmt::format("{}: no memory for {} elements of {}: {}",
                                   to_string(batch.kind.type), elements, to_string(member.dtype),
                                   reason));
  return static_cast<std::byte*>(memory);
}

Slice slice_of(std::int64_t elements, int index, int size) {
  std::int64_t each = (elements + size - 1) / size;
  if (each >= granularity) each = (each + granularity - 1) / granularity * granularity;
  const std::int64_t begin = std::min(index * each, elements);
  return {begin, std::min(each, elements - begin)};
}

std::int64_t Window::elements_of(int index, int size) const {
  const std::int64_t all = rows_of(*member, index, size) * member->row_elements;
  return std::clamp<std::int64_t>(all - place, 0, most);
}

const std::byte* Window::input_of(int index, int size) const {
  const std::int64_t rows_before =
      index * (member->rows / size) + std::min<std::int64_t>(index, member->rows % size);
  return static_cast<const std::byte*>(member->input) +
         (rows_before * member->row_elements + place) * signed_size_of(member->dtype);
}

std::byte* Window::output() const {
  return static_cast<std::byte*>(member->output) + place * signed_size_of(member->dtype);
}

Windows::Windows(const Batch& batch, std::int64_t bytes)
    : members_(batch.members),
      compression_(batch.kind.compression),
      size_(static_cast<int>(batch.ranks.size())),
      bytes_(bytes) {}

bool Windows::next(Window& window) {
  // The first rank has the most rows.
  while (member_ < members_.size() &&
         place_ >= rows_of(*members_[member_], 0, size_) * members_[member_]->row_elements) {
    ++member_;
    place_ = 0;
  }
  if (member_ == members_.size()) return false;
  const Member& member = *members_[member_];
  const DType wire = fusion::wire_type(member.dtype, compression_);
  window = {&member, place_, std::max<std::int64_t>(bytes_ / signed_size_of(wire) / size_, 1)};
  place_ += window.most;
  return true;
}

}  // namespace kolo::backend
