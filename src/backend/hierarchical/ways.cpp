#include "backend/hierarchical/ways.hpp"

#include <algorithm>
#include <cstddef>

#include "backend/hierarchical/crossing.hpp"
#include "base/dtype.hpp"

namespace kolo::backend::hierarchical {
namespace {

// Among more owners, sending a slice whole to all takes longer than sending it twice in sections.
constexpr int most_owners_whole = 8;

// Which way is chosen decides about last bits, so a little noise should not.
constexpr double worth_it = 0.85;

}  // namespace

Ways::Ways(Way way) : ways_{way, way, way}, forced_(true) {}

Ways::Ways(int owners, std::span<const std::vector<double>> seconds) {
  const std::vector<Way> ways = tried(owners);
  for (std::size_t size = 0; size < ways_.size(); ++size) {
    const auto at = [&](Way way) {
      return seconds[size][static_cast<std::size_t>(std::ranges::find(ways, way) - ways.begin())];
    };
    Way usual = ways_[size];
    if (std::ranges::find(ways, usual) == ways.end()) usual = Way::direct;
    const Way best = *std::ranges::min_element(ways, {}, at);
    ways_[size] = at(best) < worth_it * at(usual) ? best : usual;
  }
}

std::vector<Way> Ways::tried(int owners) {
  if (owners == 2) return {};
  if (owners > most_owners_whole) return {Way::direct, Way::ring, Way::doubling};
  return {Way::whole, Way::direct, Way::ring, Way::doubling};
}

Way Ways::choose(int owners, std::int64_t elements, DType wire) const {
  if (forced_) return ways_.front();
  // Between two, the network carries as much either way, but half types are shorter as results.
  if (owners == 2) return is_half(wire) ? Way::direct : Way::whole;
  const Way way = of_size(elements * signed_size_of(Crossing::combined_type(wire)));
  return way == Way::whole && owners > most_owners_whole ? Way::direct : way;
}

Way Ways::of_size(std::int64_t bytes) const {
  std::size_t nearest = 0;
  while (nearest + 1 < tried_bytes.size() && bytes > tried_bytes[nearest + 1] / 4) ++nearest;
  return ways_[nearest];
}

}  // namespace kolo::backend::hierarchical
