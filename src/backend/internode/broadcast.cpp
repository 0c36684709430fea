// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "backend/batch.hpp"
#include "backend/internode/internode_backend.hpp"
#include "backend/internode/placement.hpp"
#include "backend/mpi/tree.hpp"
#include "backend/pieces.hpp"
#include "backend/shm/pipeline.hpp"

namespace kolo::internal::backend::internode {
namespace {

constexpr std::size_t tree_count = 2;
static_assert(tree_count * shm::slot_count <= mpi::Exchange::lanes);

constexpr std::int64_t min_chunk_bytes = 4 << 10;
/// Messages that are forwarded once more delay the end by two messages: each host sends to two
/// others. All forwards together may take this part of the time for the data.
constexpr std::int64_t part_for_forwards = 8;

/// The data travels along two trees of hosts, half of it in each. A host that forwards in one of
/// them forwards nothing in the other. So no NIC carries much more than the data once.
///
/// The ranks of a host share the work: a piece has a slice for each rank of the largest host. The
/// owner of a slice receives it in chunks, forwards each chunk as soon as it has arrived, and
/// shares it through its slot. On the root's host, all ranks read the root's slot.
class Broadcast : public shm::Pipeline {
 public:
  Broadcast(shm::Arena& arena, mpi::Endpoint& endpoint, Batch given, const Placement& placement,
            shm::LocalRanks local_ranks)
      : Pipeline(arena, std::move(given), std::move(local_ranks)),
        exchange_(endpoint, batch().order()),
        root_(batch().ranks[static_cast<std::size_t>(root_index(batch()))]),
        is_root_(endpoint.rank == root_),
        slices_(placement.host_sizes.second),
        source_(batch(), is_root_, arena.slot_bytes()) {
    const int hosts = static_cast<int>(placement.hosts.size());
    const int own_host = placement.host_of(endpoint.rank);
    const int root_host = placement.host_of(root_);
    const std::vector<int>& peers = placement.hosts[static_cast<std::size_t>(own_host)];
    name_ranks(peers);
    if (own_host == root_host)
      root_place_ = static_cast<int>(std::ranges::find(peers, root_) - peers.begin());
    const std::array<mpi::Tree, tree_count> trees = mpi::two_trees(own_host, root_host, hosts);
    for (int slice = index(); slice < slices_; slice += size()) {
      Owned& owned = owned_.emplace_back();
      const Owners owners = owners_of(slice, own_host, placement);
      owned.slice = slice;
      for (std::size_t tree = 0; tree < tree_count; ++tree) {
        if (trees[tree].parent >= 0) owned.parents[tree] = owners.rank(trees[tree].parent);
        for (const int child : trees[tree].children)
          owned.children[tree].push_back(owners.rank(child));
      }
    }
    chunk_bytes_ = endpoint.piece_bytes;
    if (const int forwards = mpi::forwards_in_two_trees(hosts); forwards > 0)
      chunk_bytes_ =
          std::clamp(source_.total_bytes() / (2 * part_for_forwards * forwards * slices_),
                     std::min(min_chunk_bytes, endpoint.piece_bytes), endpoint.piece_bytes);
  }

 private:
  /// A slice that this rank takes care of, in all pieces: the ranks with which it exchanges it.
  struct Owned {
    int slice = 0;
    std::array<int, tree_count> parents{};
    std::array<std::vector<int>, tree_count> children{};
  };

  /// A part of a slice, which travels as one message.
  struct Chunk {
    const Owned* owned;
    Slice bytes;  // in the piece
    int receiving = 0;
  };

  struct PieceState {
    Piece piece{};
    // The bytes of the piece in their order: in the tensor, or in memory of the exchange. Only the
    // slices of this rank are valid before the piece is collected. Written unless this is the root.
    std::byte* bytes = nullptr;
    std::byte* taken = nullptr;  // the memory of the exchange, if any
    std::array<std::vector<Chunk>, tree_count> chunks{};
    std::array<std::size_t, tree_count> next{};  // the first chunk that is not forwarded
    int sending = 0;
    bool begun = false;
  };

  bool step_transfers() override { return exchange_.step(); }
  [[nodiscard]] Awaited combining_waits_for() const override {
    return {exchange_.peers(), "to exchange data over the network"};
  }
  [[nodiscard]] Awaited beginning_waits_for() const override { return combining_waits_for(); }

  NextPiece begin(std::size_t number) override {
    PieceState& state = pieces_[number];
    if (state.sending > 0) return NextPiece::later;  // the memory may still be read
    if (state.taken != nullptr) exchange_.give_back(std::exchange(state.taken, nullptr));
    const NextPiece next = source_.next(state.piece);
    if (next == NextPiece::none) return is_transferring() ? NextPiece::later : next;
    ++under_way_;
    return next;
  }

  /// True if a piece may still have to be sent. Then the batch must not end.
  [[nodiscard]] bool is_transferring() const {
    return under_way_ > 0 ||
           std::ranges::any_of(pieces_, [](const PieceState& one) { return one.sending > 0; });
  }

  void deposit(std::size_t number) override {
    PieceState& state = pieces_[number];
    if (is_root_ && size() > 1) {
      fusion::pack(state.piece.parts, DType::u8, DType::u8, memory(index(), number));
      worked(2 * state.piece.wire_bytes());
    }
    state.bytes = place_of(state);
    if (is_root_ && size() == 1 && state.taken != nullptr) {
      fusion::pack(state.piece.parts, DType::u8, DType::u8, state.taken);
      worked(2 * state.piece.wire_bytes());
    }
    make_chunks(state);
    if (!has_root()) receive(number);
  }

  /// The place of the piece's bytes. The root only reads it.
  [[nodiscard]] std::byte* place_of(PieceState& state) {
    const fusion::Part& part = state.piece.parts.front();
    if (is_root_ && state.piece.in_place()) return const_cast<std::byte*>(part.input);
    // The other ranks on the root's host collect the piece only after they have begun to send it.
    if (!has_root() && state.piece.in_place()) return part.output;
    return state.taken = exchange_.take(state.piece.wire_bytes());
  }

  void make_chunks(PieceState& state) {
    for (std::vector<Chunk>& chunks : state.chunks) chunks.clear();
    state.next = {};
    state.begun = false;
    for (const Owned& owned : owned_) {
      const Slice slice = slice_of(state.piece.wire_bytes(), owned.slice, slices_);
      // The trees get equally many chunks of equal lengths, so they take equal times.
      const std::int64_t most = std::int64_t{tree_count} * chunk_bytes_;
      const int count = static_cast<int>((slice.elements + most - 1) / most) * int{tree_count};
      for (int i = 0; i < count; ++i) {
        Slice bytes = slice_of(slice.elements, i, count);
        bytes.begin += slice.begin;
        if (bytes.elements > 0)
          state.chunks[static_cast<std::size_t>(i) % tree_count].push_back({&owned, bytes});
      }
    }
  }

  /// The chunks of a tree are sent in the order in which they are received here, so that they may
  /// share a lane.
  void receive(std::size_t number) {
    PieceState& state = pieces_[number];
    for (std::size_t tree = 0; tree < tree_count; ++tree)
      for (Chunk& chunk : state.chunks[tree])
        exchange_.receive(chunk.owned->parents[tree], lane(number, tree),
                          state.bytes + chunk.bytes.begin, chunk.bytes.elements, chunk.receiving);
  }

  [[nodiscard]] bool combines(std::size_t /*number*/) const override { return true; }

  Progress combine(std::size_t number) override {
    PieceState& state = pieces_[number];
    if (!std::exchange(state.begun, true) && has_root() && size() > 1 && state.taken != nullptr)
      copy_slices(state, index(), memory(root_place_, number), state.bytes);
    bool moved = false;
    bool all = true;
    for (std::size_t tree = 0; tree < tree_count; ++tree) {
      moved |= forward(number, tree);
      all &= state.next[tree] == state.chunks[tree].size();
    }
    if (all) return Progress::done;
    return moved ? Progress::moved : Progress::waiting;
  }

  /// Sends chunks that have arrived to the children in a tree, and shares them within the host.
  bool forward(std::size_t number, std::size_t tree) {
    PieceState& state = pieces_[number];
    const std::size_t before = state.next[tree];
    for (std::size_t& next = state.next[tree]; next < state.chunks[tree].size(); ++next) {
      const auto& [owned, bytes, receiving] = state.chunks[tree][next];
      if (receiving > 0) break;
      const std::byte* const from = state.bytes + bytes.begin;
      for (const int child : owned->children[tree])
        exchange_.send(child, lane(number, tree), from, bytes.elements, state.sending);
      if (has_root() || size() == 1) continue;
      std::memcpy(memory(index(), number) + bytes.begin, from,
                  static_cast<std::size_t>(bytes.elements));
      worked(2 * bytes.elements);
    }
    return state.next[tree] != before;
  }

  void collect(std::size_t number) override {
    PieceState& state = pieces_[number];
    --under_way_;
    if (is_root_) {
      for (const fusion::Part& part : state.piece.parts) {
        if (part.output == nullptr || part.output == part.input) continue;
        fusion::convert(part.input, DType::u8, part.elements, part.output, DType::u8);
        worked(2 * part.elements);
      }
      return;
    }
    if (has_root()) {
      fusion::unpack(memory(root_place_, number), DType::u8, DType::u8, state.piece.parts);
      worked(2 * state.piece.wire_bytes());
      return;
    }
    for (int rank = 0; rank < size(); ++rank)
      if (rank != index()) copy_slices(state, rank, memory(rank, number), state.bytes);
    if (state.taken == nullptr) return;
    fusion::unpack(state.bytes, DType::u8, DType::u8, state.piece.parts);
    worked(2 * state.piece.wire_bytes());
  }

  /// Copies the slices of which the rank with this index on the host takes care.
  void copy_slices(const PieceState& state, int rank, const std::byte* from, std::byte* to) {
    for (int place = rank; place < slices_; place += size()) {
      const Slice slice = slice_of(state.piece.wire_bytes(), place, slices_);
      if (slice.elements == 0) continue;
      std::memcpy(to + slice.begin, from + slice.begin, static_cast<std::size_t>(slice.elements));
      worked(2 * slice.elements);
    }
  }

  /// True on the root's host.
  [[nodiscard]] bool has_root() const { return root_place_ >= 0; }
  [[nodiscard]] static int lane(std::size_t number, std::size_t tree) {
    return static_cast<int>(tree_count * number + tree);
  }

  mpi::Exchange exchange_;
  const int root_;
  const bool is_root_;
  int root_place_ = -1;  // the index of the root on this host; -1 if it is on another
  const int slices_;     // parts of a piece
  BroadcastPieces source_;
  std::int64_t chunk_bytes_ = 0;  // the most bytes of a chunk
  std::vector<Owned> owned_{};
  std::array<PieceState, shm::slot_count> pieces_{};
  int under_way_ = 0;  // pieces that are not collected
};

}  // namespace

std::unique_ptr<Execution> make_broadcast(shm::Arena& arena, mpi::Endpoint& endpoint, Batch batch,
                                          const Placement& placement, shm::LocalRanks local_ranks) {
  return std::make_unique<Broadcast>(arena, endpoint, std::move(batch), placement,
                                     std::move(local_ranks));
}

}  // namespace kolo::internal::backend::internode
