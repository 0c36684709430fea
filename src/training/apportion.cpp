// SPDX-License-Identifier: Apache-2.0
#include "training/apportion.hpp"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace kolo::internal {
namespace {

// Examples that a rank completes by `time`, within its bounds. The unit of time is that in which
// the fastest rank completes one example, divided by its speed `fastest`.
std::int64_t completed(std::int64_t time, std::int64_t speed, std::int64_t fastest,
                       const ShareBounds& bounds) {
  if (speed == 0) return bounds.min;
  // The product below would not fit 64 bits for any time. Here it is less than max * fastest.
  const std::int64_t all = (bounds.max * fastest + speed - 1) / speed;
  return time >= all ? bounds.max : std::max(bounds.min, time * speed / fastest);
}

std::vector<std::int64_t> completed_by_all(std::int64_t time, std::span<const std::int64_t> speeds,
                                           std::span<const ShareBounds> bounds) {
  const std::int64_t fastest = *std::max_element(speeds.begin(), speeds.end());
  std::vector<std::int64_t> shares(speeds.size());
  for (std::size_t i = 0; i < speeds.size(); ++i)
    shares[i] = completed(time, speeds[i], fastest, bounds[i]);
  return shares;
}

std::int64_t sum_of(const std::vector<std::int64_t>& shares) {
  return std::accumulate(shares.begin(), shares.end(), std::int64_t{0});
}

}  // namespace

std::vector<std::int64_t> apportion(std::int64_t total, std::span<const std::int64_t> speeds,
                                    std::span<const ShareBounds> bounds) {
  // The last time by which the ranks have completed no more than `total`. At `never`, each rank
  // with a speed has completed its maximum, or more than `total`.
  const std::int64_t never = total * max_apportioned + 1;
  std::int64_t time = 0;
  for (std::int64_t end = never; end - time > 1;) {
    const std::int64_t middle = time + (end - time) / 2;
    (sum_of(completed_by_all(middle, speeds, bounds)) <= total ? time : end) = middle;
  }
  std::vector<std::int64_t> shares = completed_by_all(time, speeds, bounds);
  // A unit of time later, each rank has completed at most one more. The examples that are left go
  // to the first of these.
  const std::vector<std::int64_t> later = completed_by_all(time + 1, speeds, bounds);
  std::vector<std::size_t> next;
  for (std::size_t i = 0; i < shares.size(); ++i)
    if (later[i] > shares[i]) next.push_back(i);
  std::stable_sort(next.begin(), next.end(), [&](std::size_t a, std::size_t b) {
    return later[a] * speeds[b] < later[b] * speeds[a];
  });
  const auto left = static_cast<std::size_t>(total - sum_of(shares));
  for (std::size_t i = 0; i < std::min(left, next.size()); ++i) ++shares[next[i]];
  return shares;
}

}  // namespace kolo::internal
