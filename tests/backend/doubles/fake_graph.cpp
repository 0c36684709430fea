// SPDX-License-Identifier: Apache-2.0
#include "fake_graph.hpp"

#include <algorithm>
#include <utility>

namespace kolo::internal::backend {

void FakeGraph::join(Stream stream, const Clock& after) {
  Clock& own = clocks_[stream];
  for (const auto& [other, count] : after) own[other] = std::max(own[other], count);
}

void FakeGraph::add(Stream stream, Work work) {
  Clock& own = clocks_[stream];
  nodes_.push_back({stream, own, std::move(work)});
  ++own[stream];
}

bool FakeGraph::end() {
  has_ended_ = true;
  Clock& awaited = clocks_[origin_];
  return std::ranges::all_of(clocks_, [&](const auto& entry) {
    const auto& [stream, clock] = entry;
    const auto own = clock.find(stream);
    return own == clock.end() || awaited[stream] >= own->second;
  });
}

class FakeGraph::Replay {
 public:
  Replay(std::vector<Node> nodes, std::uint64_t seed) : nodes_(std::move(nodes)), random_(seed) {}

  bool operator()() {
    std::vector<std::size_t> possible;  // places of nodes
    for (std::size_t i = 0; i < nodes_.size(); ++i)
      if (nodes_[i].work && comes_next(nodes_[i])) possible.push_back(i);
    if (possible.empty()) return true;
    Node& chosen = nodes_[possible[random_() % possible.size()]];
    if (!chosen.work()) return false;
    chosen.work = nullptr;
    ++done_[chosen.stream];
    return std::ranges::none_of(nodes_, [](const Node& node) { return bool(node.work); });
  }

 private:
  [[nodiscard]] bool comes_next(const Node& node) {
    return std::ranges::all_of(
        node.after, [&](const auto& entry) { return done_[entry.first] >= entry.second; });
  }

  std::vector<Node> nodes_;
  std::mt19937_64 random_;
  Clock done_{};
};

FakeGraph::Work FakeGraph::replay(std::uint64_t seed) const { return Replay(nodes_, seed); }

}  // namespace kolo::internal::backend
