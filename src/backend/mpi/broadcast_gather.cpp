// SPDX-License-Identifier: Apache-2.0
// Broadcasts, allgathers and alltoalls over the network.
#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "backend/batch.hpp"
#include "backend/mpi/collective.hpp"
#include "backend/mpi/tree.hpp"
#include "fusion/pack.hpp"

namespace kolo::internal::backend::mpi {
namespace {

/// Over TCP, Open MPI sends messages below 64 KiB without a handshake, which would delay each of
/// the messages in a row.
constexpr std::int64_t max_broadcast_piece = 60 << 10;
/// The number of pieces in progress keeps a fast link with high latency busy.
constexpr std::size_t broadcast_pieces = 32;
static_assert(broadcast_pieces % PiecewiseCollective::pieces_on_own_lanes == 0);

/// From this number of pieces on, two trees take less time than a binomial tree.
constexpr std::int64_t min_pieces_in_two_trees = 4;

/// Broadcasts along trees: every rank receives a piece from its parent and forwards it to its
/// children. Small data takes a binomial tree. The pieces of large data take two trees in turn. The
/// root's inputs are read; the outputs of all other ranks are written, and those of the root if
/// they are not its inputs.
class Broadcast : public PiecewiseCollective {
 public:
  Broadcast(Endpoint& endpoint, Batch given)
      : PiecewiseCollective(endpoint, std::move(given), broadcast_pieces, broadcast_pieces),
        root_(root_index(batch())),
        max_bytes_(std::min(piece_bytes(), max_broadcast_piece)),
        source_(batch(), index() == root_, max_bytes_),
        binomial_(binomial_tree(index(), root_, size())),
        two_trees_(two_trees(index(), root_, size())) {}

 private:
  struct PieceState {
    Piece piece{};
    const Tree* tree = nullptr;
    std::byte* packed = nullptr;  // null if the piece is sent and received in place
    int receiving = 0;
    int sending = 0;
    std::uint64_t place = 0;  // among the pieces of its lane, which are sent on in their order
    bool sent_on = false;
  };

  NextPiece begin(std::size_t number) override {
    PieceState& state = pieces_[number];
    const NextPiece next = source_.next(state.piece);
    if (next != NextPiece::piece) return next;
    state.sent_on = false;
    state.place = begun_[number % pieces_on_own_lanes]++;
    state.tree = &next_tree();
    state.packed = state.piece.in_place() ? nullptr : exchange().take(state.piece.wire_bytes());
    const int lane = lane_of(number);
    if (index() == root_) {
      if (state.packed != nullptr) {
        fusion::pack(state.piece.parts, DType::u8, DType::u8, state.packed);
        worked(state.piece.wire_bytes(), DType::u8);
      }
      send_on(state, lane);
    } else {
      std::byte* const to =
          state.packed != nullptr ? state.packed : state.piece.parts.front().output;
      exchange().receive(rank_of(state.tree->parent), lane, to, state.piece.wire_bytes(),
                         state.receiving);
    }
    return NextPiece::piece;
  }

  Progress advance(std::size_t number) override {
    PieceState& state = pieces_[number];
    bool moved = false;
    if (!state.sent_on && state.receiving == 0 &&
        state.place == sent_on_[number % pieces_on_own_lanes]) {
      send_on(state, lane_of(number));
      moved = true;
    }
    if (state.sent_on && state.sending == 0) {
      finish(state);
      return Progress::done;
    }
    return moved ? Progress::moved : Progress::waiting;
  }

  [[nodiscard]] static int lane_of(std::size_t number) {
    return static_cast<int>(number % pieces_on_own_lanes);
  }
  /// All ranks take the same trees, since they know the same length before they begin a piece.
  const Tree& next_tree() {
    if (source_.total_bytes() < min_pieces_in_two_trees * max_bytes_) return binomial_;
    return two_trees_[in_two_trees_++ % two_trees_.size()];
  }

  void send_on(PieceState& state, int lane) {
    const fusion::Part& part = state.piece.parts.front();
    const std::byte* const from = state.packed != nullptr ? state.packed
                                  : index() == root_      ? part.input
                                                          : part.output;
    for (const int child : state.tree->children)
      exchange().send(rank_of(child), lane, from, state.piece.wire_bytes(), state.sending);
    state.sent_on = true;
    ++sent_on_[static_cast<std::size_t>(lane)];
  }

  void finish(PieceState& state) {
    if (index() == root_) {
      for (const fusion::Part& part : state.piece.parts) {
        if (part.output == nullptr || part.output == part.input) continue;
        fusion::convert(part.input, DType::u8, part.elements, part.output, DType::u8);
        worked(part.elements, DType::u8);
      }
    } else if (state.packed != nullptr) {
      fusion::unpack(state.packed, DType::u8, DType::u8, state.piece.parts);
      worked(state.piece.wire_bytes(), DType::u8);
    }
    exchange().give_back(state.packed);
    source_.arrived(state.piece);
  }

  int root_;
  std::int64_t max_bytes_;  // the longest piece
  BroadcastPieces source_;
  Tree binomial_;
  std::array<Tree, 2> two_trees_;
  std::size_t in_two_trees_ = 0;  // pieces so far
  std::array<PieceState, broadcast_pieces> pieces_{};
  std::array<std::uint64_t, pieces_on_own_lanes> begun_{};  // pieces by lane
  std::array<std::uint64_t, pieces_on_own_lanes> sent_on_{};
};

constexpr int rows_lane = 0;
constexpr int data_lane = 1;
constexpr std::int64_t max_copied = 512 << 10;  // bytes per step

/// Allgather and alltoall: an allgather is an alltoall with the same rows for every rank. The ranks
/// exchange the numbers of rows for each tensor, allocate memory, and then send the rows.
class Gather : public Collective {
 public:
  Gather(Endpoint& endpoint, Batch given)
      : Collective(endpoint, std::move(given)),
        sent_rows_(take_rows()),
        received_rows_(take_rows()) {}

  [[nodiscard]] Progress step() override {
    const bool moved = exchange().step();
    switch (stage_) {
      case Stage::begin:
        exchange_rows();
        stage_ = Stage::rows;
        return Progress::moved;
      case Stage::rows:
        if (pending_ > 0) break;
        for (std::size_t m = 0; m < tensors().size(); ++m) exchange_data(m);
        stage_ = Stage::data;
        return Progress::moved;
      case Stage::data:
        if (copy_some()) return Progress::moved;
        if (pending_ == 0) return Progress::done;
        break;
    }
    return moved ? Progress::moved : Progress::waiting;
  }

 private:
  enum class Stage : std::uint8_t { begin, rows, data };

  /// A copy of rows from this rank to itself.
  struct Copy {
    const std::byte* from;
    std::byte* to;
    std::int64_t bytes;
  };

  /// Takes memory for numbers of rows: one for each tensor and rank.
  [[nodiscard]] std::int64_t* take_rows() {
    const std::size_t count = tensors().size() * batch().ranks.size();
    return reinterpret_cast<std::int64_t*>(
        exchange().take(static_cast<std::int64_t>(count * sizeof(std::int64_t))));
  }

  [[nodiscard]] std::int64_t* rows_of(std::int64_t* rows, int rank_index) const {
    return rows + static_cast<std::size_t>(rank_index) * tensors().size();
  }

  void exchange_rows() {
    for (int to = 0; to < size(); ++to)
      for (std::size_t m = 0; m < tensors().size(); ++m)
        rows_of(sent_rows_, to)[m] = rows_for(*tensors()[m], to);
    const auto bytes = static_cast<std::int64_t>(tensors().size() * sizeof(std::int64_t));
    std::memcpy(rows_of(received_rows_, index()), rows_of(sent_rows_, index()),
                static_cast<std::size_t>(bytes));
    for_each_other([&](int to, int from) {
      exchange().receive(rank_of(from), rows_lane,
                         reinterpret_cast<std::byte*>(rows_of(received_rows_, from)), bytes,
                         pending_);
      exchange().send(rank_of(to), rows_lane,
                      reinterpret_cast<const std::byte*>(rows_of(sent_rows_, to)), bytes, pending_);
    });
  }

  [[nodiscard]] std::int64_t rows_for(const BatchTensor& tensor, int to) const {
    return is_alltoall() ? tensor.counts[static_cast<std::size_t>(to)] : tensor.rows;
  }

  [[nodiscard]] bool is_alltoall() const { return batch().kind.type == OperationType::alltoall; }

  void exchange_data(std::size_t m) {
    const BatchTensor& tensor = *tensors()[m];
    const std::int64_t row_bytes = tensor.row_bytes();
    std::byte* output = allocate(batch(), tensor, rows_from_each(m));
    const auto* input = static_cast<const std::byte*>(tensor.input);
    // The places of the rows for each rank and from each rank. Null stays null: nothing is read or
    // written there.
    std::vector<const std::byte*> sources;
    std::vector<std::byte*> targets;
    for (int i = 0; i < size(); ++i) {
      sources.push_back(input);
      targets.push_back(output);
      if (is_alltoall() && input != nullptr) input += rows_of(sent_rows_, i)[m] * row_bytes;
      if (output != nullptr) output += rows_of(received_rows_, i)[m] * row_bytes;
    }
    const auto place = [](int rank_index) { return static_cast<std::size_t>(rank_index); };
    copies_.push_back({sources[place(index())], targets[place(index())],
                       rows_of(sent_rows_, index())[m] * row_bytes});
    for_each_other([&](int to, int from) {
      exchange().receive(rank_of(from), data_lane, targets[place(from)],
                         rows_of(received_rows_, from)[m] * row_bytes, pending_);
      exchange().send(rank_of(to), data_lane, sources[place(to)],
                      rows_of(sent_rows_, to)[m] * row_bytes, pending_);
    });
  }

  [[nodiscard]] std::vector<std::int64_t> rows_from_each(std::size_t m) const {
    std::vector<std::int64_t> rows;
    for (int from = 0; from < size(); ++from) rows.push_back(rows_of(received_rows_, from)[m]);
    return rows;
  }

  /// Copies some of this rank's rows to itself. False if all have been copied.
  bool copy_some() {
    std::int64_t room = max_copied;
    bool copied = false;
    while (!copies_.empty() && room > 0) {
      Copy& copy = copies_.back();
      const std::int64_t bytes = std::min(copy.bytes, room);
      if (bytes > 0) {
        // The two are equal if the program gathers in place.
        if (copy.to != copy.from) std::memcpy(copy.to, copy.from, static_cast<std::size_t>(bytes));
        copy.from += bytes;
        copy.to += bytes;
        copy.bytes -= bytes;
        room -= bytes;
        copied = true;
      }
      if (copy.bytes == 0) copies_.pop_back();
    }
    return copied;
  }

  Stage stage_ = Stage::begin;
  int pending_ = 0;
  std::int64_t* sent_rows_;
  std::int64_t* received_rows_;
  std::vector<Copy> copies_{};
};

}  // namespace

std::unique_ptr<Execution> make_broadcast(Endpoint& endpoint, Batch batch) {
  return std::make_unique<Broadcast>(endpoint, std::move(batch));
}

std::unique_ptr<Execution> make_gather(Endpoint& endpoint, Batch batch) {
  return std::make_unique<Gather>(endpoint, std::move(batch));
}

}  // namespace kolo::internal::backend::mpi
