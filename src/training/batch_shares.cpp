// SPDX-License-Identifier: Apache-2.0
#include "kolo/training/batch_shares.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <string>
#include <utility>

#include "base/rank_set.hpp"
#include "kolo/collectives.hpp"
#include "kolo/error.hpp"
#include "training/apportion.hpp"
#include "training/bytes.hpp"
#include "training/require.hpp"

namespace kolo {

using namespace internal;
namespace {

// A shorter total is no measurement: clocks have about this resolution.
constexpr double min_seconds = 1e-9;

// What each rank sends to all others; it travels as bytes.
struct SpeedReport {
  std::int64_t global_batch, min_share, max_share;
  double max_change, min_gain;
  std::int64_t shares;  // a checksum
  double examples, seconds;
};
using SpeedReportBytes = std::array<std::uint8_t, sizeof(SpeedReport)>;

struct CommonField {
  const char* name;
  std::string value;
};

// What must be equal on all ranks.
std::array<CommonField, 6> common_fields(const SpeedReport& rank) {
  return {{{"global_batch", std::to_string(rank.global_batch)},
           {"min_share", std::to_string(rank.min_share)},
           {"max_share", std::to_string(rank.max_share)},
           {"max_change", fmt::format("{}", rank.max_change)},
           {"min_gain", fmt::format("{}", rank.min_gain)},
           {"the checksum of the shares", std::to_string(rank.shares)}}};
}

std::vector<SpeedReport> gather_speed_reports(const SpeedReport& mine, const ProcessSet& set) {
  const auto gathered = allgather(std::bit_cast<SpeedReportBytes>(mine),
                                  {.name = "kolo.batch_shares", .process_set = set});
  const std::vector<int> members = set.ranks();
  std::vector<SpeedReport> all(members.size());
  std::vector<int> joined;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (gathered.counts[i] == 0) {
      joined.push_back(members[i]);
      continue;
    }
    std::memcpy(&all[i], &gathered.values[begin], sizeof(SpeedReport));
    begin += sizeof(SpeedReport);
  }
  if (joined.empty()) return all;
  throw Mismatch(fmt::format("kolo::BatchShares: agree() after {} joined",
                             ranks_in_words(RankSet::of(joined))),
                 {}, joined);
}

// Every rank has all contributions, so all ranks throw the same message.
void require_equal_options(const std::vector<SpeedReport>& all, const ProcessSet& set) {
  const auto reference = common_fields(all[0]);
  const std::vector<int> members = set.ranks();
  for (std::size_t field = 0; field < reference.size(); ++field) {
    std::vector<int> differing;
    std::string example;  // the value of the first rank that differs
    for (std::size_t i = 1; i < all.size(); ++i) {
      const std::string value = common_fields(all[i])[field].value;
      if (value == reference[field].value) continue;
      if (differing.empty()) example = value;
      differing.push_back(members[i]);
    }
    if (differing.empty()) continue;
    throw Mismatch(fmt::format("kolo::BatchShares: {} differs between the ranks: {} on rank {}, {} "
                               "on rank {}. Differing from rank {}: {}",
                               reference[field].name, reference[field].value, members[0], example,
                               differing[0], members[0], to_string(RankSet::of(differing))),
                   {}, differing);
  }
}

// The speeds as integers, of which the greatest is `max_apportioned`; none if a rank has recorded
// no time. A division, and a product with a power of two, have the same result on all ranks,
// whatever compiler made their programs.
std::vector<std::int64_t> speeds_of(const std::vector<SpeedReport>& all) {
  std::vector<double> speeds;
  for (const SpeedReport& rank : all) {
    if (rank.seconds < min_seconds) return {};
    speeds.push_back(rank.examples / rank.seconds);
  }
  const double fastest = *std::max_element(speeds.begin(), speeds.end());
  if (fastest <= 0.0) return {};  // seconds have overflowed to infinity
  std::vector<std::int64_t> integers;
  integers.reserve(speeds.size());
  for (const double speed : speeds)
    integers.push_back(std::max(
        std::int64_t{1},
        static_cast<std::int64_t>(speed / fastest * static_cast<double>(max_apportioned))));
  return integers;
}

// The time that the slowest rank needs, in units that only comparisons can use.
double step_time(const std::vector<std::int64_t>& shares, const std::vector<std::int64_t>& speeds) {
  double longest = 0.0;
  for (std::size_t i = 0; i < shares.size(); ++i)
    longest = std::max(longest, static_cast<double>(shares[i]) / static_cast<double>(speeds[i]));
  return longest;
}

ShareBounds bounds_of(const BatchSharesOptions& options) {
  return {.min = options.min_share,
          .max = options.max_share == 0 ? options.global_batch : options.max_share};
}

// The shares that one agreement can reach from `share`. They always include it, so that the current
// shares of all ranks are within these bounds.
ShareBounds bounds_around(std::int64_t share, const BatchSharesOptions& options) {
  const ShareBounds all = bounds_of(options);
  const auto now = static_cast<double>(share);
  const auto least = static_cast<std::int64_t>(std::ceil(now / options.max_change));
  const auto most = static_cast<std::int64_t>(
      std::min(std::floor(now * options.max_change), static_cast<double>(options.global_batch)));
  return {.min = std::max(all.min, std::min(least, share - 1)),
          .max = std::min(all.max, std::max(most, share + 1))};
}

}  // namespace

BatchShares::BatchShares(const BatchSharesOptions& options) : options_(options) {
  require(options.min_share >= 1, "kolo::BatchShares: min_share must be at least 1, but is {}",
          options.min_share);
  require(options.max_share >= 0, "kolo::BatchShares: max_share must not be negative, but is {}",
          options.max_share);
  require(std::isfinite(options.max_change) && options.max_change > 1.0,
          "kolo::BatchShares: max_change must be greater than 1, but is {}", options.max_change);
  require(options.min_gain >= 0.0 && options.min_gain < 1.0,
          "kolo::BatchShares: min_gain must be 0 to less than 1, but is {}", options.min_gain);
  require(options.process_set.rank() >= 0,
          "kolo::BatchShares: this rank is not in the process set");
  share_equally();
}

void BatchShares::share_equally() {
  const std::int64_t ranks = options_.process_set.size();
  const std::int64_t batch = options_.global_batch;
  require(batch <= max_apportioned && batch / options_.min_share >= ranks,
          "kolo::BatchShares: global_batch must be {} (min_share) for each of {} ranks to {}, but "
          "is {}",
          options_.min_share, ranks, max_apportioned, batch);
  const std::int64_t largest = (batch + ranks - 1) / ranks;
  require(options_.max_share == 0 || options_.max_share >= largest,
          "kolo::BatchShares: max_share is {}, but equal shares of {} examples for {} ranks have "
          "up to {}",
          options_.max_share, batch, ranks, largest);
  std::vector<std::int64_t> equal;
  for (std::int64_t rank = 0; rank < ranks; ++rank)
    equal.push_back(batch / ranks + (rank < batch % ranks ? 1 : 0));
  shares_ = std::move(equal);
  examples_ = seconds_ = 0.0;
}

std::int64_t BatchShares::own() const {
  return shares_[static_cast<std::size_t>(options_.process_set.rank())];
}

double BatchShares::weight() const {
  return static_cast<double>(own() * std::ssize(shares_)) /
         static_cast<double>(options_.global_batch);
}

void BatchShares::add(std::int64_t examples, double seconds) {
  require(examples >= 0,
          "kolo::BatchShares: the number of examples must not be negative, but is {}", examples);
  require(std::isfinite(seconds) && seconds >= 0.0,
          "kolo::BatchShares: seconds must be finite and not negative, but are {}", seconds);
  if (examples == 0) return;
  examples_ += static_cast<double>(examples);
  seconds_ += seconds;
}

bool BatchShares::agree() {
  const std::vector<SpeedReport> all =
      gather_speed_reports({.global_batch = options_.global_batch,
                            .min_share = options_.min_share,
                            .max_share = options_.max_share,
                            .max_change = options_.max_change,
                            .min_gain = options_.min_gain,
                            .shares = crc32(fmt::format("{}", fmt::join(shares_, " "))),
                            .examples = examples_,
                            .seconds = seconds_},
                           options_.process_set);
  require_equal_options(all, options_.process_set);
  const std::vector<std::int64_t> speeds = speeds_of(all);
  if (speeds.empty()) return false;
  examples_ = seconds_ = 0.0;

  // Measured speeds vary. Without a limit, the shares would follow their noise, and a program would
  // begin again with other batches for nothing. What counts is the gain of the best shares: the way
  // to them may be in many small changes.
  const std::vector<ShareBounds> bounds(shares_.size(), bounds_of(options_));
  const std::vector<std::int64_t> best = apportion(options_.global_batch, speeds, bounds);
  const double limit = step_time(shares_, speeds) * (1.0 - options_.min_gain);
  if (step_time(best, speeds) >= limit) return false;

  std::vector<ShareBounds> near;
  for (const std::int64_t share : shares_) near.push_back(bounds_around(share, options_));
  std::vector<std::int64_t> next = apportion(options_.global_batch, speeds, near);
  std::swap(shares_, next);
  return shares_ != next;
}

void BatchShares::rejoin() {
  require(!options_.process_set.data(),
          "kolo::BatchShares: rejoin() with a process set, which has ended with its session. Make "
          "the set and the shares in the function that elastic::run calls");
  share_equally();
}

}  // namespace kolo
