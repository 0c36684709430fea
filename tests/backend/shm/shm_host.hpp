// SPDX-License-Identifier: Apache-2.0
// The ranks of a host as objects of one process, with plain memory for their segments.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "backend/shm/shm_backend.hpp"
#include "node/doorbell.hpp"
#include "node/local_group.hpp"

namespace kolo::internal::backend {

class ShmHost {
 public:
  /// `given_ranks`: the rank at each index. The heap of each rank has `heap_bytes`.
  ShmHost(std::vector<int> given_ranks, std::int64_t piece_bytes, std::size_t heap_bytes = 0,
          const shm::NumaNodes& nodes = {})
      : ranks_(std::move(given_ranks)), words_(ranks_.size()) {
    const std::size_t lines = ShmBackend::bytes_needed(piece_bytes) / sizeof(Line) + 1;
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      segments_.push_back(std::make_unique<Line[]>(lines));
      bells_.push_back(std::make_unique<node::Doorbell>(words_[i], node::Doorbell::open()));
      heaps_.push_back(std::make_unique_for_overwrite<Line[]>(heap_bytes / sizeof(Line)));
    }
    std::vector<node::LocalPeer> local_peers;
    for (std::size_t i = 0; i < ranks_.size(); ++i)
      local_peers.push_back(
          {segments_[i][0].bytes, bells_[i].get(), {heaps_[i][0].bytes, heap_bytes}});
    for (std::size_t i = 0; i < ranks_.size(); ++i)
      backends_.push_back(std::make_unique<ShmBackend>(ranks_, local_peers, static_cast<int>(i),
                                                       piece_bytes, 0,
                                                       ShmBackend::default_cache_share, nodes));
  }

  [[nodiscard]] const std::vector<int>& ranks() const { return ranks_; }
  [[nodiscard]] ShmBackend& backend(int index) const {
    return *backends_[static_cast<std::size_t>(index)];
  }
  [[nodiscard]] const node::Doorbell& bell(int index) const {
    return *bells_[static_cast<std::size_t>(index)];
  }
  [[nodiscard]] std::byte* heap(int index) const {
    return heaps_[static_cast<std::size_t>(index)][0].bytes;
  }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };

  std::vector<int> ranks_;
  std::vector<std::unique_ptr<Line[]>> segments_{};
  std::vector<node::BellWord> words_;
  std::vector<std::unique_ptr<node::Doorbell>> bells_{};
  std::vector<std::unique_ptr<Line[]>> heaps_{};
  std::vector<std::unique_ptr<ShmBackend>> backends_{};
};

}  // namespace kolo::internal::backend
