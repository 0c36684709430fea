// SPDX-License-Identifier: Apache-2.0
// Gathers short blocks of many hosts in few messages.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/internode/placement.hpp"
#include "backend/mpi/exchange.hpp"

namespace kolo::internal::backend::internode {

/// All owners get the blocks of all. In each of log2(owners) steps, an owner sends the blocks that
/// it has, and so has twice as many afterwards. (Bruck et al.: "Efficient algorithms for all-to-all
/// communications in multiport message-passing systems", 1997.)
///
/// Blocks are identified by their distance: block d is that of the owner d places after this one.
/// The network accesses only memory of the exchange.
class BlockGathering {
 public:
  /// `bytes`: the sizes of the blocks by distance. The exchange, the owners and `sending`, which
  /// counts what is being sent, must outlive this object.
  BlockGathering(mpi::Exchange& exchange, const Owners& owners, int lane,
                 const std::vector<std::int64_t>& bytes, int& sending);

  /// The block with this distance. Write block 0 before `advance`; read others once complete.
  [[nodiscard]] std::byte* block(int distance) const {
    return memory_ + begins_[static_cast<std::size_t>(distance)];
  }
  [[nodiscard]] std::int64_t bytes(int distance) const {
    const auto place = static_cast<std::size_t>(distance);
    return begins_[place + 1] - begins_[place];
  }
  /// Sends what can be sent. Returns the number of complete blocks, from distance 0 on. Once all
  /// are complete, everything is being sent.
  [[nodiscard]] int advance();
  /// Call it when nothing is being sent or received, and all blocks have been read.
  void give_back() { exchange_.give_back(memory_); }

 private:
  static constexpr std::size_t max_steps = 31;

  /// The number of blocks that travel in a step.
  [[nodiscard]] int blocks_in(int step) const;
  [[nodiscard]] std::int64_t bytes_of(int first, int count) const {
    const auto begin = static_cast<std::size_t>(first);
    return begins_[begin + static_cast<std::size_t>(count)] - begins_[begin];
  }

  mpi::Exchange& exchange_;
  const Owners& owners_;
  int lane_;
  int& sending_;
  std::vector<std::int64_t> begins_{};  // places of the blocks in the memory, and its end
  std::byte* memory_ = nullptr;
  int steps_ = 0;
  int sent_ = 0;                            // steps whose messages are sent
  std::array<int, max_steps> receiving_{};  // by step
};

}  // namespace kolo::internal::backend::internode
