// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "backend/batch.hpp"
#include "backend/internode/block_gathering.hpp"
#include "backend/internode/internode_backend.hpp"
#include "backend/internode/placement.hpp"
#include "backend/internode/reduction.hpp"
#include "backend/shm/pipeline.hpp"
#include "backend/shm/scatter_list.hpp"

namespace kolo::internal::backend::internode {
namespace {

constexpr int rows_lane = 0;
constexpr int data_lane = 1;
constexpr std::int64_t max_copied = 512 << 10;  // bytes per step

/// From this mean size of the ranks' blocks on, a message takes longer than the forwarding of all
/// blocks costs.
constexpr std::int64_t min_block_alone = 8 << 10;

/// A rank sends its rows to one rank of each other host. The ranks of a host share arriving rows
/// through their slots: each deposits its own rows, then the rows that it takes care of, as they
/// arrive. A first round carries the numbers of rows, from which all ranks compute the second.
///
/// Among many hosts of equally many ranks, short blocks travel together: the ranks with the same
/// place on their hosts gather them in few steps.
class Allgather : public shm::Pipeline {
 public:
  Allgather(shm::Arena& arena, mpi::Endpoint& endpoint, Batch given,
            std::shared_ptr<const Counterparts> counterparts, shm::LocalRanks local_ranks)
      : Pipeline(arena, std::move(given), std::move(local_ranks)),
        exchange_(endpoint, batch().order()),
        kept_counterparts_(std::move(counterparts)),
        own_(index_of(endpoint.rank, batch())),
        tensors_(batch().tensors.size()),
        rows_(reinterpret_cast<std::int64_t*>(exchange_.take(
            static_cast<std::int64_t>(batch().ranks.size() * tensors_ * sizeof(std::int64_t))))) {
    std::vector<int> local;
    for (const int peer : counterparts_.local_peers()) local.push_back(rank_of(peer));
    name_ranks(std::move(local));
    const std::vector<std::int64_t> own = sent_rows(batch());
    std::ranges::copy(own, rows_of(own_));
    owners_ = owners_of_place(batch().ranks, own_, counterparts_, max_owners_at_once);
  }

 private:
  enum class Round : std::uint8_t { before, rows, data };

  /// The rows of one rank for one tensor, or their numbers.
  struct Section {
    std::byte* data;
    std::int64_t bytes;
  };
  using Block = std::vector<Section>;

  /// Rows of one rank of another host, on their way to this rank. They are shared once complete.
  struct Arrival {
    Block block{};
    std::int64_t bytes = 0;
    int receiving = 0;
  };

  bool step_transfers() override {
    bool moved = exchange_.step();
    moved |= copy_own();
    return take_gathered() || moved;
  }

  [[nodiscard]] Awaited beginning_waits_for() const override {
    return {exchange_.peers(), "to exchange data over the network"};
  }

  NextPiece begin(std::size_t /*number*/) override {
    if (round_ == Round::before) begin_rows();
    while (begun_ == pieces_) {
      // A round begins only when the previous one is complete: its memory and lists are reused.
      if (read_ < pieces_ || is_transferring()) return NextPiece::later;
      if (round_ == Round::data) return NextPiece::none;
      begin_data();
    }
    if (!may_share((begun_ + 1) * piece_bytes())) return NextPiece::later;
    ++begun_;
    return NextPiece::piece;
  }

  void deposit(std::size_t number) override {
    std::byte* const slot = memory(index(), number);
    worked(outgoing_.advance(piece_bytes(),
                             [&](const std::byte* from, std::int64_t offset, std::size_t bytes) {
                               std::memcpy(slot + offset, from, bytes);
                             }));
  }

  void collect(std::size_t number) override {
    for (int rank = 0; rank < size(); ++rank) {
      if (rank == index()) continue;
      const std::byte* const slot = memory(rank, number);
      worked(incoming_[static_cast<std::size_t>(rank)].advance(
          piece_bytes(), [&](std::byte* to, std::int64_t offset, std::size_t bytes) {
            std::memcpy(to, slot + offset, bytes);
          }));
    }
    ++read_;
  }

  void begin_rows() {
    round_ = Round::rows;
    const auto bytes = static_cast<std::int64_t>(tensors_ * sizeof(std::int64_t));
    begin_round(
        rows_lane, {{reinterpret_cast<const std::byte*>(rows_of(own_)), bytes}},
        [&](int rank) {
          return Block{{reinterpret_cast<std::byte*>(rows_of(rank)), bytes}};
        },
        std::ssize(batch().ranks) * bytes);
  }

  void begin_data() {
    round_ = Round::data;
    std::vector<Block> outputs(batch().ranks.size());
    ConstBlock inputs;
    std::int64_t total = 0;
    for (std::size_t m = 0; m < tensors_; ++m) {
      const BatchTensor& tensor = *batch().tensors[m];
      std::vector<std::int64_t> arriving(outputs.size());
      for (std::size_t rank = 0; rank < arriving.size(); ++rank)
        arriving[rank] = rows_of(static_cast<int>(rank))[m];
      std::byte* output = allocate(batch(), tensor, arriving);
      for (std::size_t rank = 0; rank < arriving.size(); ++rank) {
        const std::int64_t bytes = arriving[rank] * tensor.row_bytes();
        outputs[rank].push_back({output, bytes});
        if (bytes > 0) output += bytes;
        total += bytes;
      }
      const auto* const input = static_cast<const std::byte*>(tensor.input);
      inputs.push_back({input, tensor.bytes()});
      // The two are equal if the program gathers in place.
      if (std::byte* const to = outputs[static_cast<std::size_t>(own_)].back().data; to != input) {
        copied_from_.add(input, tensor.bytes());
        copied_to_.add(to, tensor.bytes());
      }
    }
    begin_round(
        data_lane, inputs, [&](int rank) { return outputs[static_cast<std::size_t>(rank)]; },
        total);
  }

  struct ConstSection {
    const std::byte* data;
    std::int64_t bytes;
  };
  using ConstBlock = std::vector<ConstSection>;

  /// Sends `own` and lists the data to share. `block_of(rank)` is the destination of a rank's
  /// block, `total` the size of all blocks.
  template <typename BlockOf>
  void begin_round(int lane, const ConstBlock& own, BlockOf block_of, std::int64_t total) {
    outgoing_ = {};
    incoming_.assign(static_cast<std::size_t>(size()), {});
    arrivals_.clear();
    begun_ = read_ = 0;
    available_ = 0;
    for (const ConstSection& section : own) {
      outgoing_.add(section.data, section.bytes);
      available_ += section.bytes;
    }
    if (gathering_) std::exchange(gathering_, std::nullopt)->give_back();
    receive(lane, block_of, total);
    if (gathering_) {
      std::byte* to = gathering_->block(0);
      for (const ConstSection& section : own) to = copied(section.data, section.bytes, to);
      static_cast<void>(gathering_->advance());
      list_incoming(block_of);
      return;
    }
    for (int distance = 1; distance < counterparts_.hosts(); ++distance) {
      const int host =
          (counterparts_.own_host() + counterparts_.hosts() - distance) % counterparts_.hosts();
      for (const ConstSection& section : own)
        exchange_.send(rank_of(counterparts_.on_behalf_of_this(host)), lane, section.data,
                       section.bytes, sending_);
    }
    list_incoming(block_of);
  }

  /// All ranks know the sizes of all blocks, so they agree on how these travel.
  template <typename BlockOf>
  void receive(int lane, BlockOf block_of, std::int64_t total) {
    const std::vector<int> sources = counterparts_.cared_for(index());
    arrivals_.resize(sources.size());
    next_arrival_ = gathered_ = 0;
    for (std::size_t i = 0; i < sources.size(); ++i) {
      arrivals_[i].block = block_of(sources[i]);
      for (const Section& section : arrivals_[i].block) {
        outgoing_.add(section.data, section.bytes);
        arrivals_[i].bytes += section.bytes;
      }
    }
    if (!owners_.ranks.empty() && total < std::ssize(batch().ranks) * min_block_alone) {
      std::vector<std::int64_t> bytes{bytes_of(block_of(own_))};
      for (Arrival& arrival : arrivals_) {
        bytes.push_back(arrival.bytes);
        arrival.receiving = 1;
      }
      gathering_.emplace(exchange_, owners_, lane, bytes, sending_);
      return;
    }
    for (std::size_t i = 0; i < sources.size(); ++i)
      for (const Section& section : arrivals_[i].block)
        exchange_.receive(rank_of(sources[i]), lane, section.data, section.bytes,
                          arrivals_[i].receiving);
  }

  [[nodiscard]] static std::int64_t bytes_of(const Block& block) {
    std::int64_t bytes = 0;
    for (const Section& section : block) bytes += section.bytes;
    return bytes;
  }

  /// Copies and returns the end of the copy.
  static std::byte* copied(const std::byte* from, std::int64_t bytes, std::byte* to) {
    if (bytes > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
    return to + bytes;
  }

  /// Moves some of the blocks that have arrived together to their places. False if there are none.
  bool take_gathered() {
    if (!gathering_ || gathered_ == arrivals_.size()) return false;
    const auto complete = static_cast<std::size_t>(gathering_->advance()) - 1;
    std::int64_t room = max_copied;
    const std::size_t before = gathered_;
    for (; gathered_ < complete && room > 0; ++gathered_) {
      Arrival& arrival = arrivals_[gathered_];
      const std::byte* from = gathering_->block(static_cast<int>(gathered_) + 1);
      for (const Section& section : arrival.block) {
        copied(from, section.bytes, section.data);
        from += section.bytes;
      }
      arrival.receiving = 0;
      room -= arrival.bytes;
      worked(2 * arrival.bytes);
    }
    return gathered_ != before;
  }

  /// Lists the data that each other rank of this host shares, in the order of that rank's deposits.
  template <typename BlockOf>
  void list_incoming(BlockOf block_of) {
    std::int64_t most = outgoing_.left();
    for (int place = 0; place < size(); ++place) {
      if (place == index()) continue;
      shm::ScatterList<std::byte>& list = incoming_[static_cast<std::size_t>(place)];
      std::vector<int> shared = counterparts_.cared_for(place);
      shared.insert(shared.begin(), counterparts_.local_peers()[static_cast<std::size_t>(place)]);
      for (const int rank : shared)
        for (const Section& section : block_of(rank)) list.add(section.data, section.bytes);
      most = std::max(most, list.left());
    }
    // With only one rank on this host, there is nothing to share.
    pieces_ = size() == 1 ? 0 : (most + piece_bytes() - 1) / piece_bytes();
  }

  /// True if the first `bytes` of the data to share have arrived, or all if there are fewer.
  bool may_share(std::int64_t bytes) {
    while (next_arrival_ < arrivals_.size() && arrivals_[next_arrival_].receiving == 0)
      available_ += arrivals_[next_arrival_++].bytes;
    return next_arrival_ == arrivals_.size() || bytes <= available_;
  }

  [[nodiscard]] bool is_transferring() const {
    return sending_ > 0 || copied_from_.left() > 0 ||
           std::ranges::any_of(arrivals_, [](const Arrival& one) { return one.receiving > 0; });
  }

  /// Copies some of this rank's rows into its own result. False if all have been copied.
  bool copy_own() {
    if (copied_from_.left() == 0) return false;
    const std::int64_t room = std::min(max_copied, copied_from_.left());
    copied_to_.advance(room, [&](std::byte* to, std::int64_t, std::size_t bytes) {
      copied_from_.advance(static_cast<std::int64_t>(bytes),
                           [&](const std::byte* from, std::int64_t offset, std::size_t part) {
                             std::memcpy(to + offset, from, part);
                           });
    });
    worked(room);
    return true;
  }

  [[nodiscard]] std::int64_t* rows_of(int rank) const {
    return rows_ + static_cast<std::size_t>(rank) * tensors_;
  }
  [[nodiscard]] int rank_of(int index) const {
    return batch().ranks[static_cast<std::size_t>(index)];
  }

  mpi::Exchange exchange_;
  const std::shared_ptr<const Counterparts> kept_counterparts_;
  const Counterparts& counterparts_ = *kept_counterparts_;
  int own_;          // this rank's index in the batch
  Owners owners_{};  // the ranks whose blocks may travel together; none if hosts are few or uneven
  std::size_t tensors_;
  std::int64_t* rows_;  // the numbers of rows of each rank, by tensor
  Round round_ = Round::before;

  // State of the current round.
  shm::ScatterList<const std::byte> outgoing_{};         // data that this rank shares
  std::vector<shm::ScatterList<std::byte>> incoming_{};  // data that other ranks share
  std::vector<Arrival> arrivals_{};                      // in the order of `outgoing_`
  std::optional<BlockGathering> gathering_{};            // if blocks travel together
  std::size_t gathered_ = 0;                             // arrivals that have been taken from it
  std::size_t next_arrival_ = 0;
  std::int64_t available_ = 0;  // bytes of `outgoing_` that have arrived
  int sending_ = 0;
  std::int64_t pieces_ = 0;
  std::int64_t begun_ = 0;
  std::int64_t read_ = 0;

  // The copy of this rank's own rows.
  shm::ScatterList<const std::byte> copied_from_{};
  shm::ScatterList<std::byte> copied_to_{};
};

}  // namespace

std::unique_ptr<Execution> make_allgather(shm::Arena& arena, mpi::Endpoint& endpoint, Batch batch,
                                          std::shared_ptr<const Counterparts> counterparts,
                                          shm::LocalRanks local_ranks) {
  return std::make_unique<Allgather>(arena, endpoint, std::move(batch), std::move(counterparts),
                                     std::move(local_ranks));
}

}  // namespace kolo::internal::backend::internode
