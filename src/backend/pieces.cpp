#include "backend/pieces.hpp"

#include <algorithm>
#include <utility>

#include "base/dtype.hpp"

namespace kolo::backend {
namespace {

constexpr std::int64_t least_alone = 32 << 10;

fusion::Part part_of(const Member& member, std::int64_t elements) {
  return {static_cast<const std::byte*>(member.input), static_cast<std::byte*>(member.output),
          elements};
}

}  // namespace

std::vector<Run> element_runs(const Batch& batch) {
  std::vector<Run> runs;
  runs.reserve(batch.members.size());
  for (const Member* member : batch.members)
    runs.push_back({part_of(*member, member->elements()), member->dtype,
                    fusion::wire_type(member->dtype, batch.kind.compression)});
  return runs;
}

std::vector<Run> byte_runs(const Batch& batch) {
  std::vector<Run> runs;
  runs.reserve(batch.members.size());
  for (const Member* member : batch.members)
    runs.push_back({part_of(*member, member->elements() * signed_size_of(member->dtype)), DType::u8,
                    DType::u8});
  return runs;
}

std::int64_t Piece::wire_bytes() const { return elements * signed_size_of(wire); }

Cutter::Cutter(std::vector<Run> runs, std::int64_t piece_bytes)
    : runs_(std::move(runs)), piece_bytes_(piece_bytes) {
  std::erase_if(runs_, [](const Run& run) { return run.part.elements == 0; });
}

bool Cutter::next(Piece& piece) {
  piece.parts.clear();
  piece.elements = 0;
  if (first_ == runs_.size()) return false;
  piece.dtype = runs_[first_].dtype;
  piece.wire = runs_[first_].wire;
  const std::int64_t most = piece_bytes_ / (is_half(piece.wire) ? 4 : signed_size_of(piece.wire));
  const bool alone = travels_alone(runs_[first_]);
  do {
    Run& run = runs_[first_];
    take(run, most - piece.elements, piece);
    if (run.part.elements > 0) break;
    ++first_;
  } while (!alone && first_ < runs_.size() && piece.elements < most &&
           runs_[first_].dtype == piece.dtype && !travels_alone(runs_[first_]));
  return true;
}

bool Cutter::travels_alone(const Run& run) const {
  return run.part.elements * signed_size_of(run.wire) >= std::min(least_alone, piece_bytes_ / 2);
}

void Cutter::take(Run& run, std::int64_t room, Piece& piece) {
  fusion::Part& left = run.part;
  const std::int64_t elements = std::min(left.elements, room);
  piece.parts.push_back({left.input, left.output, elements});
  piece.elements += elements;
  const std::int64_t bytes = elements * signed_size_of(run.dtype);
  if (left.input != nullptr) left.input += bytes;
  if (left.output != nullptr) left.output += bytes;
  left.elements -= elements;
}

}  // namespace kolo::backend
