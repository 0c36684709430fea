// SPDX-License-Identifier: Apache-2.0
#include "backend/adasum.hpp"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "backend/shm/pipeline.hpp"
#include "reduction/adasum.hpp"

namespace kolo::internal::backend::shm {
namespace {

/// Every rank gathers the vectors of all ranks and combines them alone. This takes more arithmetic
/// and memory than rounds of pairs, but only one batch of the arena.
class Adasum : public Execution {
 public:
  Adasum(Arena& arena, Batch given, LocalRanks local_ranks)
      : batch_(std::move(given)), pairs_(adasum_pairs(static_cast<int>(local_ranks.size()))) {
    for (const BatchTensor* const tensor : batch_.tensors) {
      const AdasumVector& vector = vectors_.emplace_back(*tensor, batch_.kind.compression);
      places_.push_back(bytes_);
      bytes_ += (vector.bytes() + alignment - 1) / alignment * alignment;
    }
    own_ = memory_of(1);
    gathered_.input = own_.get();
    gathered_.rows = 1;
    gathered_.row_elements = bytes_;
    gathered_.allocate = [this, size = local_ranks.size()](std::span<const std::int64_t>) -> void* {
      all_ = memory_of(size);
      return all_.get();
    };
    Batch gather = batch_;
    gather.kind = {.type = OperationType::allgather};
    gather.tensors = {&gathered_};
    gather_ = make_gather(arena, std::move(gather), std::move(local_ranks));
  }

  [[nodiscard]] Progress step() override {
    switch (stage_) {
      case Stage::read:
        if (!next_block()) enter(Stage::gather);
        return Progress::moved;
      case Stage::gather:
        if (const Progress progress = gather_->step(); progress != Progress::done) return progress;
        enter(pairs_.empty() ? Stage::write : Stage::dots);
        return Progress::moved;
      case Stage::dots:
        if (!next_block()) enter(Stage::combine);
        return Progress::moved;
      case Stage::combine:
        if (!next_block()) enter(++pair_ == pairs_.size() ? Stage::write : Stage::dots);
        return Progress::moved;
      case Stage::write: break;
    }
    return next_block() ? Progress::moved : Progress::done;
  }

  [[nodiscard]] Awaited waits_for() const override { return gather_->waits_for(); }

 private:
  static constexpr std::int64_t alignment = 64;

  enum class Stage : std::uint8_t { read, gather, dots, combine, write };

  void enter(Stage stage) {
    stage_ = stage;
    vector_ = 0;
    offset_ = 0;
    if (stage == Stage::dots) dots_.assign(vectors_.size(), {});
  }

  /// Works on the next block of the stage. False if none is left.
  bool next_block() {
    while (vector_ < vectors_.size() && offset_ >= vectors_[vector_].elements()) {
      ++vector_;
      offset_ = 0;
    }
    if (vector_ == vectors_.size()) return false;
    const std::int64_t elements = std::min(adasum_block, vectors_[vector_].elements() - offset_);
    work_on(elements);
    offset_ += elements;
    return true;
  }

  void work_on(std::int64_t elements) {
    const AdasumVector& vector = vectors_[vector_];
    if (stage_ == Stage::read) {
      const PhaseTimer timer(batch_, Phase::pack);
      vector.read(batch_, offset_, elements, own_.get() + places_[vector_]);
    } else if (stage_ == Stage::write) {
      const PhaseTimer timer(batch_, Phase::unpack);
      vector.write(batch_, offset_, elements, vector_of(0));
    } else {
      const PhaseTimer timer(batch_, Phase::reduce);
      const std::int64_t begin = offset_ * signed_size_of(vector.wire);
      std::byte* const a = vector_of(pairs_[pair_].first) + begin;
      const std::byte* const b = vector_of(pairs_[pair_].second) + begin;
      reduction::Dots& dots = dots_[vector_];
      if (stage_ == Stage::dots)
        reduction::add_dots(vector.wire, a, b, elements, dots);
      else
        reduction::add_shares(vector.wire, a, b, reduction::adasum_shares(dots), elements, a);
    }
  }

  /// Memory for the vectors of `ranks` ranks. It is not initialized, which would take long.
  [[nodiscard]] std::unique_ptr<std::byte[]> memory_of(std::size_t ranks) const {
    return std::make_unique_for_overwrite<std::byte[]>(ranks * static_cast<std::size_t>(bytes_));
  }
  /// The vector of a rank for the current tensor.
  [[nodiscard]] std::byte* vector_of(int index) const {
    return all_.get() + index * bytes_ + places_[vector_];
  }

  Batch batch_;
  std::vector<AdasumPair> pairs_;
  std::vector<AdasumVector> vectors_{};
  std::vector<std::int64_t> places_{};  // offsets of a rank's vectors
  std::int64_t bytes_ = 0;              // size of all of a rank's vectors
  std::unique_ptr<std::byte[]> own_{};
  std::unique_ptr<std::byte[]> all_{};
  BatchTensor gathered_{};
  std::unique_ptr<Execution> gather_{};
  std::vector<reduction::Dots> dots_{};
  Stage stage_ = Stage::read;
  std::size_t pair_ = 0;
  // The start of the next block.
  std::size_t vector_ = 0;
  std::int64_t offset_ = 0;
};

}  // namespace

std::unique_ptr<Execution> make_adasum(Arena& arena, Batch batch, LocalRanks local_ranks) {
  return std::make_unique<Adasum>(arena, std::move(batch), std::move(local_ranks));
}

}  // namespace kolo::internal::backend::shm
