#include "backend/cuda/staged_chunk.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "backend/batch.hpp"
#include "base/dtype.hpp"
#include "kolo/cuda.hpp"

namespace kolo::backend::cuda {
namespace {

/// Shorter tensors are moved by the kernel, all of a chunk in one launch; longer ones by the copy
/// engine.
constexpr std::int64_t least_bytes_copied = 256 << 10;

constexpr std::int64_t most_chunks = Batch::parts - 1;  // the first part is for meetings

/// Adasum looks at whole tensors, and the others have rows.
bool can_go_apart(const Descriptor& kind) {
  return kind.type == OperationType::broadcast ||
         (kind.type == OperationType::allreduce && kind.op != ReduceOp::adasum);
}

std::int64_t bytes_of_row(const Member& member) {
  return member.row_elements * signed_size_of(member.dtype);
}

}  // namespace

std::vector<std::vector<Stretch>> cut_into_chunks(const Batch& batch, std::int64_t least_bytes) {
  std::vector<std::vector<Stretch>> chunks(1);
  std::int64_t bytes = 0;
  for (const Member* member : batch.members)
    bytes += member->elements() * signed_size_of(member->dtype);
  const std::int64_t each = can_go_apart(batch.kind)
                                ? std::max(least_bytes, (bytes + most_chunks - 1) / most_chunks)
                                : std::numeric_limits<std::int64_t>::max();
  std::int64_t room = each;
  for (const Member* member : batch.members) {
    const std::int64_t size = signed_size_of(member->dtype);
    Stretch next{member, 0, member->elements()};
    while (next.elements * size > room && std::ssize(chunks) < most_chunks) {
      const std::int64_t fits = room / size;
      if (fits > 0) chunks.back().push_back({member, next.first, fits});
      next.first += fits;
      next.elements -= fits;
      chunks.emplace_back();
      room = each;
    }
    chunks.back().push_back(next);
    room -= next.elements * size;
  }
  return chunks;
}

StagedChunk::~StagedChunk() {
  if (stage_ == Stage::done) return;
  for (Place& place : places_) {
    place.input.abandon();
    place.output.abandon();
  }
  outgoing_.abandon();
  incoming_.abandon();
}

void StagedChunk::begin(std::span<const Stretch> stretches) {
  for (const Stretch& stretch : stretches) stage(stretch);
  if (reads_input())
    for (const Place& place : places_)
      move(place.source, place.input.data(), place.bytes, CopyKind::to_host);
  outgoing_.launch(gpu_.stream());
  arrived_ = make_event(gpu_.runtime());
  gpu_.runtime()->record(arrived_.get(), gpu_.stream());
  Batch host = batch_;
  host.kind.device = {};
  host.part = part_;
  host.members.clear();
  for (const Place& place : places_) host.members.push_back(&place.staged);
  execution_ = cpu_.start(std::move(host));
}

Progress StagedChunk::step() {
  switch (stage_) {
    case Stage::leaving:
      if (!gpu_.runtime()->is_done(arrived_.get())) return Progress::waiting;
      stage_ = Stage::host;
      return Progress::moved;
    case Stage::host: {
      const Progress progress = execution_->step();
      if (progress != Progress::done) return progress;
      bring_back();
      stage_ = Stage::returning;
      return Progress::moved;
    }
    case Stage::returning:
      if (!gpu_.runtime()->is_done(returned_.get())) return Progress::waiting;
      stage_ = Stage::done;
      return Progress::moved;
    case Stage::done: break;
  }
  return Progress::waiting;
}

Awaited StagedChunk::waits_for() const {
  switch (stage_) {
    case Stage::leaving: return {{}, "the GPU to make the tensors and to copy them to the host"};
    case Stage::host: return execution_->waits_for();
    default: return {{}, "the GPU to copy the results from the host"};
  }
}

/// All but a broadcast's root only write.
bool StagedChunk::reads_input() const {
  return batch_.kind.type != OperationType::broadcast || batch_.kind.root == rank_;
}

void StagedChunk::stage(const Stretch& stretch) {
  const Member& member = *stretch.member;
  const std::int64_t before = stretch.first * signed_size_of(member.dtype);
  Place& place = places_.emplace_back();
  place.member = &member;
  place.source = static_cast<const std::byte*>(member.input) + before;
  place.bytes = stretch.elements * signed_size_of(member.dtype);
  place.input = take(place.bytes);
  place.staged.input = place.input.data();
  place.staged.dtype = member.dtype;
  place.staged.rows = member.rows;
  place.staged.row_elements = member.row_elements;
  place.staged.counts = member.counts;
  switch (batch_.kind.type) {
    case OperationType::reducescatter: {
      const auto size = static_cast<int>(batch_.ranks.size());
      place.target = member.output;
      place.arriving =
          reducescatter_rows(member.rows, index_of(rank_, batch_), size) * bytes_of_row(member);
      place.output = take(place.arriving);
      place.staged.output = place.output.data();
      return;
    }
    case OperationType::allgather:
    case OperationType::alltoall:
      place.staged.allocate = [this, &place](std::span<const std::int64_t> rows) {
        return allocate(place, rows);
      };
      return;
    default:
      place.target = static_cast<std::byte*>(member.output) + before;
      place.arriving = place.bytes;
      place.staged.output = place.input.data();
      place.staged.rows = stretch.elements;
      place.staged.row_elements = 1;
  }
}

BlockPool<PinnedMemory>::Block StagedChunk::take(std::int64_t bytes) {
  return gpu_.pinned_blocks().take(static_cast<std::size_t>(bytes));
}

void* StagedChunk::allocate(Place& place, std::span<const std::int64_t> rows) {
  const std::int64_t all = std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
  const CudaStreamScope scope(gpu_.return_stream());
  place.target = place.member->allocate(rows);
  if (place.target == nullptr && all > 0 && place.member->row_elements > 0) return nullptr;
  place.arriving = all * bytes_of_row(*place.member);
  place.output = take(place.arriving);
  return place.output.data();
}

void StagedChunk::move(const void* from, void* to, std::int64_t bytes, CopyKind kind) {
  const bool leaves = kind == CopyKind::to_host;
  if (bytes >= least_bytes_copied) {
    gpu_.runtime()->copy(to, from, static_cast<std::size_t>(bytes), kind,
                         leaves ? gpu_.stream() : gpu_.return_stream());
    return;
  }
  (leaves ? outgoing_ : incoming_)
      .add({.from = static_cast<const std::byte*>(from),
            .to = static_cast<std::byte*>(to),
            .elements = bytes});
}

/// The root's tensor is where it belongs, unless it goes to another place.
void StagedChunk::bring_back() {
  for (const Place& place : places_) {
    if (batch_.kind.type == OperationType::broadcast && place.source == place.target &&
        batch_.kind.root == rank_)
      continue;
    const auto* const from =
        place.output.data() != nullptr ? place.output.data() : place.input.data();
    move(from, place.target, place.arriving, CopyKind::to_device);
  }
  incoming_.launch(gpu_.return_stream());
  returned_ = make_event(gpu_.runtime());
  gpu_.runtime()->record(returned_.get(), gpu_.return_stream());
}

}  // namespace kolo::backend::cuda
