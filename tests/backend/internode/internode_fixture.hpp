// SPDX-License-Identifier: Apache-2.0
// The fixture of the inter-node tests: made-up hosts that consist of the ranks of one host.
#pragma once

#include <gtest/gtest.h>
#include <mpi.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "../../support/share_memory.hpp"
#include "../fixture.hpp"
#include "backend/internode/internode_backend.hpp"
#include "backend/shm/shm_backend.hpp"
#include "messenger/mpi_messenger.hpp"

namespace kolo::internal::backend {

/// The lowest rank of each rank's host, by rank.
using NodeOf = std::vector<int>;

struct Layout {
  std::string name;
  std::function<int(int rank, int size)> node_of;

  [[nodiscard]] NodeOf of(int size) const {
    NodeOf nodes;
    for (int rank = 0; rank < size; ++rank) nodes.push_back(node_of(rank, size));
    return nodes;
  }
};

/// Layouts of ranks on hosts. With three ranks or more, each has several hosts, one of which has
/// several ranks.
inline const std::vector<Layout> layouts{
    {"hosts of two", [](int rank, int) { return rank - rank % 2; }},
    {"the last alone", [](int rank, int size) { return rank == size - 1 ? rank : 0; }},
    {"the first alone", [](int rank, int) { return rank == 0 ? 0 : 1; }},
    {"in turns", [](int rank, int) { return rank % 2; }},
    {"two together", [](int rank, int) { return rank == 1 ? 0 : rank; }}};

/// All algorithms; between two hosts one, which depends on the index of the layout.
inline std::vector<internode::InterNodeAlgorithm> algorithms_for(std::size_t layout,
                                                                 const NodeOf& node_of) {
  using internode::InterNodeAlgorithm;
  const std::vector<InterNodeAlgorithm> all{InterNodeAlgorithm::whole, InterNodeAlgorithm::direct,
                                            InterNodeAlgorithm::doubling,
                                            InterNodeAlgorithm::halving};
  if (std::set(node_of.begin(), node_of.end()).size() > 2) return all;
  return {all[layout % all.size()]};
}

/// The ranks of one made-up host after the other, as a session would connect them.
class MadeUpHosts {
 public:
  MadeUpHosts(MPI_Comm comm, const NodeOf& node_of, std::int64_t piece_bytes) : messenger_(comm) {
    int rank = 0;
    MPI_Comm_rank(comm, &rank);
    const int node = node_of[static_cast<std::size_t>(rank)];
    std::vector<int> ranks;
    int index = 0;
    for (int other = 0; other < static_cast<int>(node_of.size()); ++other) {
      if (node_of[static_cast<std::size_t>(other)] != node) continue;
      if (other < rank) ++index;
      ranks.push_back(other);
    }
    MPI_Comm host = MPI_COMM_NULL;
    MPI_Comm_split(comm, node, index, &host);
    local_peers_ = std::make_unique<node::LocalGroup>(
        node::share_memory(host, ShmBackend::bytes_needed(piece_bytes), 4096));
    MPI_Comm_free(&host);
    std::vector<shm::LocalPeer> shared;
    for (int i = 0; i < local_peers_->size(); ++i)
      shared.push_back({local_peers_->memory(i), &local_peers_->bell(i)});
    inside_ = std::make_unique<ShmBackend>(ranks, std::move(shared), index, piece_bytes);
    across_ =
        std::make_unique<InterNodeBackend>(messenger_, node_of, inside_->arena(), piece_bytes);
  }

  [[nodiscard]] messenger::Messenger& messenger() { return messenger_; }
  [[nodiscard]] ShmBackend& inside() { return *inside_; }
  [[nodiscard]] InterNodeBackend& across() { return *across_; }

 private:
  messenger::MpiMessenger messenger_;
  std::unique_ptr<node::LocalGroup> local_peers_{};
  std::unique_ptr<ShmBackend> inside_{};
  std::unique_ptr<InterNodeBackend> across_{};
};

class InterNodeTest : public BackendTest {
 protected:
  /// Calls `test(node_of)` with each layout of the ranks on hosts and each algorithm between them.
  /// Between two hosts, only one algorithm is used.
  template <typename Test>
  void on_every_layout(Test test, std::int64_t slot_bytes = piece_bytes) {
    using internode::InterNodeAlgorithm;
    for (std::size_t place = 0; place < layouts.size(); ++place) {
      SCOPED_TRACE(layouts[place].name);
      const NodeOf node_of = layouts[place].of(size_);
      hosts_ = std::make_unique<MadeUpHosts>(comm_, node_of, slot_bytes);
      for (const InterNodeAlgorithm algorithm : algorithms_for(place, node_of)) {
        SCOPED_TRACE(testing::Message() << "algorithm " << static_cast<int>(algorithm));
        hosts_->across().use(algorithm);
        test(node_of);
      }
      MPI_Barrier(comm_);  // the last batch may still be read
      hosts_.reset();
    }
  }

  /// Steps all executions until they are done. Ranks share cores, so a rank that waits yields.
  static void finish_all(std::vector<std::unique_ptr<Execution>> executions) {
    while (!executions.empty()) {
      bool moved = false;
      std::erase_if(executions, [&](const std::unique_ptr<Execution>& execution) {
        const Progress progress = execution->step();
        moved |= progress != Progress::waiting;
        return progress == Progress::done;
      });
      if (!moved) std::this_thread::yield();
    }
  }

  void run(Batch batch) {
    std::vector<std::unique_ptr<Execution>> executions;
    executions.push_back(hosts_->across().start(std::move(batch)));
    finish_all(std::move(executions));
  }

  std::unique_ptr<MadeUpHosts> hosts_{};
};

}  // namespace kolo::internal::backend
