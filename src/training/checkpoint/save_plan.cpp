// SPDX-License-Identifier: Apache-2.0
#include "training/checkpoint/save_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <tuple>
#include <utility>

#include "base/format.hpp"
#include "training/bytes.hpp"

namespace kolo::internal {
namespace {

// Tensors of fewer bytes are rank 0's.
constexpr std::uint64_t large_bytes = 64 * 1024;

// A text is a part as a whole, so its name has no dot.
bool is_divided(const std::string& name, const TensorSource& tensor) {
  return tensor.bytes() >= large_bytes && name.find('.') != std::string::npos;
}

// The owner of each large tensor, as an index into the sharing ranks: the largest tensors first,
// each to the rank with the least to write.
std::map<std::string, std::size_t> owners_of(const StateView& shared, std::size_t sharers) {
  std::vector<std::pair<std::uint64_t, std::string>> large;
  std::vector<std::uint64_t> load(sharers);
  for (const auto& [name, tensor] : shared.tensors)
    if (is_divided(name, tensor)) large.emplace_back(tensor.bytes(), name);
  std::ranges::sort(large, [](const auto& a, const auto& b) {
    return std::tie(b.first, a.second) < std::tie(a.first, b.second);
  });
  std::map<std::string, std::size_t> owners;
  for (const auto& [bytes, name] : large) {
    const auto least = std::ranges::min_element(load);
    *least += bytes;
    owners[name] = static_cast<std::size_t>(least - load.begin());
  }
  return owners;
}

}  // namespace

void merge(StateView& into, StateView from) {
  into.tensors.merge(from.tensors);
  into.metadata.merge(from.metadata);
}

std::string SaveOffer::to_text() const { return (sees_folder ? 'S' : 'B') + layout; }

SaveOffer SaveOffer::from_text(const std::string& text) {
  if (text.empty()) return {};
  return {.sees_folder = text.front() == 'S', .layout = text.substr(1)};
}

std::string layout_of(const StateView& shared) {
  std::string text;
  for (const auto& [name, tensor] : shared.tensors)
    if (is_divided(name, tensor))
      text += fmt::format("{}\n{} {}\n", name, to_string(tensor.dtype), to_string(tensor.shape));
  return fmt::format("{:08x} {}", crc32(text), text.size());
}

SavePlan plan_save(const std::vector<SaveOffer>& offers, int rank, StateView shared,
                   StateView own) {
  SavePlan plan;
  std::vector<int> sharers;
  for (std::size_t other = 0; other < offers.size(); ++other) {
    const SaveOffer& offer = offers[other];
    if (!offer.sees_folder) continue;
    if (static_cast<int>(other) == rank) plan.file = plan.files;
    ++plan.files;
    if (offer.layout == offers.front().layout) sharers.push_back(static_cast<int>(other));
  }
  if (plan.file < 0) return plan;
  plan.state = std::move(own);
  const auto me = std::ranges::find(sharers, rank);
  if (me != sharers.end()) {
    const auto owners = owners_of(shared, sharers.size());
    std::erase_if(shared.tensors, [&](const auto& tensor) {
      const auto owner = owners.find(tensor.first);
      return (owner == owners.end() ? 0 : owner->second) !=
             static_cast<std::size_t>(me - sharers.begin());
    });
    if (rank != 0) shared.metadata.clear();
    merge(plan.state, std::move(shared));
  }
  return plan;
}

}  // namespace kolo::internal
