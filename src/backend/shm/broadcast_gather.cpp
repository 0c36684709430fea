// SPDX-License-Identifier: Apache-2.0
// Broadcasts, allgathers and alltoalls in shared memory.
#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "backend/batch.hpp"
#include "backend/pieces.hpp"
#include "backend/shm/arena.hpp"
#include "backend/shm/pipeline.hpp"
#include "backend/shm/scatter_list.hpp"

namespace kolo::internal::backend::shm {
namespace {

/// All ranks read from the root's slots.
class Broadcast : public Pipeline {
 public:
  Broadcast(Arena& arena, Batch given, LocalRanks local_ranks)
      : Pipeline(arena, std::move(given), std::move(local_ranks)),
        root_(root_index(batch())),
        source_(batch(), index() == root_, piece_bytes()) {
    collect_from(root_);
  }

 private:
  NextPiece begin(std::size_t number) override { return source_.next(pieces_[number]); }

  void deposit(std::size_t number) override {
    if (index() != root_ || size() == 1) return;
    fusion::pack(pieces_[number].parts, DType::u8, DType::u8, memory(root_, number));
    worked(2 * pieces_[number].wire_bytes());
  }

  void collect(std::size_t number) override {
    const Piece& piece = pieces_[number];
    if (index() == root_) {
      for (const fusion::Part& part : piece.parts)
        if (part.output != nullptr)
          fusion::convert(part.input, DType::u8, part.elements, part.output, DType::u8);
    } else {
      fusion::unpack(memory(root_, number), DType::u8, DType::u8, piece.parts);
      if (is_last_reader()) take_over(memory(root_, number), piece.wire_bytes());
    }
    source_.arrived(piece);
    worked(2 * piece.wire_bytes());
  }

  int root_;
  BroadcastPieces source_;
  std::array<Piece, slot_count> pieces_{};
};

/// Allgather and alltoall: an allgather is an alltoall with the same rows for every rank. The first
/// pieces carry tables of numbers of rows, from which every rank computes how many pieces follow.
/// The others carry the data of each rank, tensor after tensor; in an allgather all ranks read the
/// same data.
class Gather : public Pipeline {
 public:
  Gather(Arena& arena, Batch given, LocalRanks local_ranks)
      : Pipeline(arena, std::move(given), std::move(local_ranks)),
        targets_(batch().kind.type == OperationType::alltoall ? size() : 1) {
    const std::vector<std::int64_t> own = sent_rows(batch());
    tables_.assign(static_cast<std::size_t>(size()), std::vector<std::int64_t>(own.size()));
    tables_[static_cast<std::size_t>(index())] = own;
    const std::int64_t bytes = table_bytes();
    table_pieces_ = (bytes + piece_bytes() - 1) / piece_bytes();
  }

 private:
  NextPiece begin(std::size_t number) override {
    if (begun_ < table_pieces_) {
      table_piece_[number] = begun_++;
      return NextPiece::piece;
    }
    if (tables_read_ < table_pieces_) return NextPiece::later;
    if (begun_ == table_pieces_) make_lists();
    if (begun_ == table_pieces_ + data_pieces_) return NextPiece::none;
    table_piece_[number] = -1;
    ++begun_;
    return NextPiece::piece;
  }

  void deposit(std::size_t number) override {
    std::byte* const slot = memory(index(), number);
    if (const std::int64_t piece = table_piece_[number]; piece >= 0) {
      const auto [place, bytes] = table_section(piece, index());
      std::memcpy(slot, place, bytes);
      return;
    }
    for (int target = 0; target < targets_; ++target)
      worked(outgoing_[static_cast<std::size_t>(target)].advance(
          share(), [&](const std::byte* from, std::int64_t offset, std::size_t bytes) {
            std::memcpy(slot + target * share() + offset, from, bytes);
          }));
    take(number, index());
  }

  void collect(std::size_t number) override {
    if (const std::int64_t piece = table_piece_[number]; piece >= 0) {
      for (int rank = 0; rank < size(); ++rank) {
        const auto [place, bytes] = table_section(piece, rank);
        if (rank != index()) std::memcpy(place, memory(rank, number), bytes);
      }
      ++tables_read_;
      return;
    }
    for (int rank = 0; rank < size(); ++rank)
      if (rank != index()) take(number, rank);
  }

  /// Copies the data that `rank` has for this rank. This rank copies its own data before others may
  /// read the slot.
  void take(std::size_t number, int rank) {
    std::byte* const part = memory(rank, number) + (targets_ == 1 ? 0 : index()) * share();
    const std::int64_t bytes = incoming_[static_cast<std::size_t>(rank)].advance(
        share(), [&](std::byte* to, std::int64_t offset, std::size_t count) {
          std::memcpy(to, part + offset, count);
        });
    if (rank != index() && (targets_ > 1 || size() == 2)) take_over(part, bytes);
    worked(bytes);
  }

  [[nodiscard]] std::int64_t table_bytes() const {
    return static_cast<std::int64_t>(tables_.front().size() * sizeof(std::int64_t));
  }

  /// A section of the local copy of a rank's table.
  std::pair<std::byte*, std::size_t> table_section(std::int64_t piece, int rank) {
    auto* const table =
        reinterpret_cast<std::byte*>(tables_[static_cast<std::size_t>(rank)].data());
    const std::int64_t begin = piece * piece_bytes();
    return {table + begin,
            static_cast<std::size_t>(std::min(piece_bytes(), table_bytes() - begin))};
  }

  /// The bytes of a slot for each target.
  [[nodiscard]] std::int64_t share() const {
    return std::max<std::int64_t>(piece_bytes() / targets_, 1);
  }

  /// The rows of a tensor from one rank for a target. An allgather has one target, which is all
  /// ranks.
  [[nodiscard]] std::int64_t rows(std::size_t tensor, int from, int target) const {
    return tables_[static_cast<std::size_t>(from)]
                  [tensor * static_cast<std::size_t>(targets_) + static_cast<std::size_t>(target)];
  }

  void make_lists() {
    outgoing_.resize(static_cast<std::size_t>(targets_));
    incoming_.resize(static_cast<std::size_t>(size()));
    const int own_target = targets_ == 1 ? 0 : index();
    for (std::size_t m = 0; m < batch().tensors.size(); ++m) {
      const BatchTensor& tensor = *batch().tensors[m];
      const std::int64_t row_bytes = tensor.row_bytes();
      const auto* input = static_cast<const std::byte*>(tensor.input);
      for (int target = 0; target < targets_; ++target) {
        const std::int64_t bytes = rows(m, index(), target) * row_bytes;
        outgoing_[static_cast<std::size_t>(target)].add(input, bytes);
        if (bytes > 0) input += bytes;
      }
      std::vector<std::int64_t> arriving;
      for (int rank = 0; rank < size(); ++rank) arriving.push_back(rows(m, rank, own_target));
      std::byte* output = allocate(batch(), tensor, arriving);
      for (int rank = 0; rank < size(); ++rank) {
        const std::int64_t bytes = arriving[static_cast<std::size_t>(rank)] * row_bytes;
        incoming_[static_cast<std::size_t>(rank)].add(output, bytes);
        if (bytes > 0) output += bytes;
      }
    }
    data_pieces_ = (max_bytes() + share() - 1) / share();
  }

  /// The maximum bytes from any rank for any target; the same on all ranks.
  [[nodiscard]] std::int64_t max_bytes() const {
    std::int64_t max = 0;
    for (int from = 0; from < size(); ++from)
      for (int target = 0; target < targets_; ++target) {
        std::int64_t bytes = 0;
        for (std::size_t m = 0; m < batch().tensors.size(); ++m)
          bytes += rows(m, from, target) * batch().tensors[m]->row_bytes();
        max = std::max(max, bytes);
      }
    return max;
  }

  int targets_;
  std::vector<std::vector<std::int64_t>> tables_{};  // for each rank: rows by tensor and target
  std::int64_t table_pieces_ = 0;
  std::int64_t data_pieces_ = 0;
  std::int64_t begun_ = 0;                                // pieces of both kinds
  std::int64_t tables_read_ = 0;                          // pieces of tables
  std::array<std::int64_t, slot_count> table_piece_{};    // -1: a piece of data
  std::vector<ScatterList<const std::byte>> outgoing_{};  // for each target
  std::vector<ScatterList<std::byte>> incoming_{};        // from each rank
};

}  // namespace

std::unique_ptr<Execution> make_broadcast(Arena& arena, Batch batch, LocalRanks local_ranks) {
  return std::make_unique<Broadcast>(arena, std::move(batch), std::move(local_ranks));
}

std::unique_ptr<Execution> make_gather(Arena& arena, Batch batch, LocalRanks local_ranks) {
  return std::make_unique<Gather>(arena, std::move(batch), std::move(local_ranks));
}

}  // namespace kolo::internal::backend::shm
