// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "backend/adasum.hpp"
#include "backend/mpi/collective.hpp"
#include "base/dtype.hpp"
#include "reduction/adasum.hpp"

namespace kolo::internal::backend::mpi {
namespace {

/// This rank's vector of one tensor. `own` lies in the tensor's output if that has the wire type,
/// otherwise in a buffer.
struct Vector : AdasumVector {
  using AdasumVector::AdasumVector;

  std::byte* own = nullptr;
  std::byte* other = nullptr;  // the partner's vector
  reduction::Dots dots{};
};

/// A round in which whole vectors travel. Ranks are given by index; -1 means none.
struct Round {
  int send_to = -1;
  int receive_from = -1;
  bool combine = false;  // false: the received vector replaces this rank's
};

/// Recursive doubling over the first p ranks, where p is the largest power of two up to `size`: in
/// every round, pairs exchange their vectors and combine them in the same order. A rank beyond
/// these first sends its vector to the rank p below it, and receives the result at the end.
std::vector<Round> rounds_of(int index, int size) {
  const int paired = static_cast<int>(std::bit_floor(static_cast<unsigned>(size)));
  if (index >= paired) return {{.send_to = index - paired}, {.receive_from = index - paired}};
  std::vector<Round> rounds;
  const int extra = index + paired < size ? index + paired : -1;
  if (extra >= 0) rounds.push_back({.receive_from = extra, .combine = true});
  for (int distance = 1; distance < paired; distance *= 2) {
    const int partner = index ^ distance;
    rounds.push_back({.send_to = partner, .receive_from = partner, .combine = true});
  }
  if (extra >= 0) rounds.push_back({.send_to = extra});
  return rounds;
}

class Adasum : public Collective {
 public:
  Adasum(Endpoint& endpoint, Batch given)
      : Collective(endpoint, std::move(given)), rounds_(rounds_of(index(), size())) {
    for (const BatchTensor* tensor : tensors()) {
      Vector vector(*tensor, batch().kind.compression);
      vector.own = vector.wire == tensor->dtype ? static_cast<std::byte*>(tensor->output)
                                                : exchange().take(vector.bytes());
      if (size() > 1) vector.other = exchange().take(vector.bytes());
      vectors_.push_back(vector);
    }
  }

  [[nodiscard]] Progress step() override {
    const bool moved = exchange().step();
    // A round's vectors are combined or overwritten only after all its transfers are complete.
    if (pending_ > 0) return moved ? Progress::moved : Progress::waiting;
    switch (stage_) {
      case Stage::prepare:
        if (!next_block()) enter(Stage::post);
        break;
      case Stage::post:
        if (round_ == rounds_.size()) {
          enter(Stage::finish);
        } else {
          post(rounds_[round_]);
          enter(rounds_[round_++].combine ? Stage::dots : Stage::post);
        }
        break;
      case Stage::dots:
        if (!next_block()) enter(Stage::combine);
        break;
      case Stage::combine:
        if (!next_block()) enter(Stage::post);
        break;
      case Stage::finish:
        if (!next_block()) return Progress::done;
    }
    return Progress::moved;
  }

 private:
  enum class Stage : std::uint8_t { prepare, post, dots, combine, finish };

  void enter(Stage stage) {
    stage_ = stage;
    vector_ = 0;
    offset_ = 0;
    if (stage == Stage::dots)
      for (Vector& vector : vectors_) vector.dots = {};
  }

  void post(const Round& round) {
    for (const Vector& vector : vectors_) {
      if (round.receive_from >= 0)
        exchange().receive(rank_of(round.receive_from), 0,
                           round.combine ? vector.other : vector.own, vector.bytes(), pending_);
      if (round.send_to >= 0)
        exchange().send(rank_of(round.send_to), 0, vector.own, vector.bytes(), pending_);
    }
  }

  /// Works on the next block of the stage. False if none is left.
  bool next_block() {
    while (vector_ < vectors_.size() && offset_ >= vectors_[vector_].elements()) {
      ++vector_;
      offset_ = 0;
    }
    if (vector_ == vectors_.size()) return false;
    Vector& vector = vectors_[vector_];
    const std::int64_t elements = std::min(adasum_block, vector.elements() - offset_);
    work_on(vector, elements);
    offset_ += elements;
    return true;
  }

  void work_on(Vector& vector, std::int64_t elements) {
    if (stage_ == Stage::prepare) {
      vector.read(batch(), offset_, elements, vector.own);
    } else if (stage_ == Stage::finish) {
      vector.write(batch(), offset_, elements, vector.own);
    } else {
      const std::int64_t begin = offset_ * signed_size_of(vector.wire);
      combine(vector, vector.own + begin, vector.other + begin, elements);
    }
  }

  /// The lower rank's vector comes first, so that both ranks of a pair compute the same bits.
  void combine(Vector& vector, std::byte* own, const std::byte* other, std::int64_t elements) {
    const bool own_first = index() < rounds_[round_ - 1].receive_from;
    const std::byte* const a = own_first ? own : other;
    const std::byte* const b = own_first ? other : own;
    if (stage_ == Stage::dots) {
      reduction::add_dots(vector.wire, a, b, elements, vector.dots);
    } else {
      const reduction::Shares shares = reduction::adasum_shares(vector.dots);
      reduction::add_shares(vector.wire, a, b, shares, elements, own);
    }
  }

  std::vector<Round> rounds_;
  std::vector<Vector> vectors_{};
  Stage stage_ = Stage::prepare;
  std::size_t round_ = 0;  // the next round
  // The start of the next block.
  std::size_t vector_ = 0;
  std::int64_t offset_ = 0;
  int pending_ = 0;
};

}  // namespace

std::unique_ptr<Execution> make_adasum(Endpoint& endpoint, Batch batch) {
  return std::make_unique<Adasum>(endpoint, std::move(batch));
}

}  // namespace kolo::internal::backend::mpi
