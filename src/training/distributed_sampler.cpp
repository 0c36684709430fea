// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <random>
#include <utility>

#include "kolo/error.hpp"
#include "kolo/session.hpp"
#include "kolo/training/sampler.hpp"
#include "training/apportion.hpp"
#include "training/require.hpp"
#include "training/state_text.hpp"

namespace kolo {

using namespace internal;
namespace {

// The Fisher-Yates shuffle, written out because the standard does not specify std::shuffle's order:
// ranks may run binaries of different compilers, and a checkpoint may be resumed with another
// compiler's binary. The modulo's bias is below examples / 2^64.
void shuffle(std::vector<std::int64_t>& order, std::uint64_t seed, std::int64_t epoch) {
  const auto high = [](std::uint64_t word) { return static_cast<std::uint32_t>(word >> 32); };
  const auto low = [](std::uint64_t word) { return static_cast<std::uint32_t>(word); };
  const auto epoch_word = static_cast<std::uint64_t>(epoch);
  std::seed_seq words{low(seed), high(seed), low(epoch_word), high(epoch_word)};
  std::mt19937_64 random(words);
  for (std::size_t left = order.size(); left > 1; --left) {
    std::swap(order[left - 1], order[random() % left]);
  }
}

void require_batch_size(std::int64_t batch_size) {
  require(batch_size >= 1, "kolo::DistributedSampler: batch_size must be at least 1, but is {}",
          batch_size);
}

std::int64_t total_of(std::span<const std::int64_t> numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), std::int64_t{0});
}

constexpr const char* sampler_state_kind = "kolo.sampler.1";

}  // namespace

DistributedSampler::DistributedSampler(const DistributedSamplerOptions& options)
    : options_(options), takes_rank_(options.rank == -1), takes_ranks_(options.ranks == -1) {
  rejoin();
  require(options_.examples >= 0,
          "kolo::DistributedSampler: examples must not be negative, but is {}", options_.examples);
}

void DistributedSampler::rejoin() {
  if (takes_ranks_) options_.ranks = kolo::size();
  if (takes_rank_) options_.rank = kolo::rank();
  require(options_.rank >= 0 && options_.rank < options_.ranks,
          "kolo::DistributedSampler: rank {} does not exist among {} ranks", options_.rank,
          options_.ranks);
}

std::vector<std::int64_t> DistributedSampler::indices(std::int64_t epoch) const {
  return share(epoch, 0);
}

std::vector<std::int64_t> DistributedSampler::indices() const { return share(epoch_, consumed_); }

std::int64_t DistributedSampler::steps_left(std::int64_t batch_size) const {
  require_batch_size(batch_size);
  const std::int64_t per_step = batch_size * options_.ranks;
  return (positions_from(consumed_) + per_step - 1) / per_step;
}

void DistributedSampler::advance(std::int64_t batch_size) {
  require_batch_size(batch_size);
  const std::int64_t step = batch_size * options_.ranks;
  // After the last step the epoch is over for any number of ranks that resumes: examples that were
  // dropped stay dropped. Otherwise fewer ranks would find examples left.
  consumed_ = step >= positions_from(consumed_) ? options_.examples : consumed_ + step;
}

void DistributedSampler::require_shares(std::span<const std::int64_t> shares) const {
  require(std::ssize(shares) == options_.ranks,
          "kolo::DistributedSampler: there are {} shares for {} ranks", shares.size(),
          options_.ranks);
  // Each is limited before the sum, which could overflow.
  for (const std::int64_t share : shares)
    require(share >= 0 && share <= max_apportioned,
            "kolo::DistributedSampler: a share must be 0 to {}, but is {}", max_apportioned, share);
  require(total_of(shares) >= 1 && total_of(shares) <= max_apportioned,
          "kolo::DistributedSampler: the sum of the shares must be 1 to {}, but is {}",
          max_apportioned, total_of(shares));
}

std::vector<std::int64_t> DistributedSampler::indices(std::span<const std::int64_t> shares) const {
  require_shares(shares);
  const std::vector<std::int64_t> order = order_of(epoch_);
  const auto before = static_cast<std::size_t>(options_.rank);
  std::vector<std::int64_t> mine;
  DistributedSampler step = *this;
  while (step.consumed_ < options_.examples) {
    const std::vector<std::int64_t> sizes = step.next_sizes(shares);
    const auto begin = order.begin() + step.consumed_ + total_of(std::span(sizes).first(before));
    mine.insert(mine.end(), begin, begin + sizes[before]);
    step.advance(shares);
  }
  return mine;
}

std::int64_t DistributedSampler::steps_left(std::span<const std::int64_t> shares) const {
  require_shares(shares);
  const std::int64_t per_step = total_of(shares);
  return (options_.examples - consumed_ + per_step - 1) / per_step;
}

std::vector<std::int64_t> DistributedSampler::next_sizes(
    std::span<const std::int64_t> shares) const {
  require_shares(shares);
  const std::int64_t left = options_.examples - consumed_;
  if (left >= total_of(shares)) return {shares.begin(), shares.end()};
  // The shares stand for the speeds. They are also the maxima: a rank may have no memory for more.
  std::vector<ShareBounds> bounds;
  for (const std::int64_t share : shares) bounds.push_back({.min = 0, .max = share});
  return apportion(left, shares, bounds);
}

double DistributedSampler::weight(std::span<const std::int64_t> shares) const {
  const std::vector<std::int64_t> sizes = next_sizes(shares);
  const std::int64_t own = sizes[static_cast<std::size_t>(options_.rank)];
  if (own == 0) return 0.0;
  return static_cast<double>(own * options_.ranks) / static_cast<double>(total_of(sizes));
}

void DistributedSampler::advance(std::span<const std::int64_t> shares) {
  require_shares(shares);
  consumed_ = std::min(options_.examples, consumed_ + total_of(shares));
}

void DistributedSampler::begin_epoch(std::int64_t epoch) {
  epoch_ = epoch;
  consumed_ = 0;
}

std::string DistributedSampler::state() const {
  return StateWriter(sampler_state_kind)
      .add(options_.seed)
      .add(epoch_)
      .add(consumed_)
      .add(options_.examples)
      .add(std::int64_t{options_.shuffle ? 1 : 0})
      .text();
}

void DistributedSampler::load_state(const std::string& state) {
  StateReader reader(sampler_state_kind, state);
  const std::uint64_t seed = reader.natural();
  const std::int64_t epoch = reader.integer();
  const std::int64_t consumed = reader.integer();
  const std::int64_t examples = reader.integer();
  const bool shuffled = reader.integer() != 0;
  reader.end();
  const auto order = [](bool shuffle) { return shuffle ? "shuffled" : "in order"; };
  require(examples == options_.examples && shuffled == options_.shuffle,
          "kolo::DistributedSampler: the state is for {} examples, {}, but this sampler has {}, {}",
          examples, order(shuffled), options_.examples, order(options_.shuffle));
  require(consumed >= 0 && consumed <= examples,
          "kolo::DistributedSampler: the state says that {} of {} examples are consumed", consumed,
          examples);
  // Assigned only after all checks: a refused state leaves the sampler unchanged.
  options_.seed = seed;
  epoch_ = epoch;
  consumed_ = consumed;
}

std::vector<std::int64_t> DistributedSampler::order_of(std::int64_t epoch) const {
  std::vector<std::int64_t> order(static_cast<std::size_t>(options_.examples));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  if (options_.shuffle) shuffle(order, options_.seed, epoch);
  return order;
}

// Positions that all ranks together visit from position `consumed` of the order to the epoch's end.
std::int64_t DistributedSampler::positions_from(std::int64_t consumed) const {
  const std::int64_t left = options_.examples - consumed;
  const std::int64_t ranks = options_.ranks;
  switch (options_.remainder) {
    case Remainder::drop: return left / ranks * ranks;
    case Remainder::pad: return (left + ranks - 1) / ranks * ranks;
    case Remainder::uneven: break;
  }
  return left;
}

// Ranks take positions in turn. So after any number of steps all ranks together have visited a
// prefix of the order, and one number, `consumed`, describes it for any number of ranks.
std::vector<std::int64_t> DistributedSampler::share(std::int64_t epoch,
                                                    std::int64_t consumed) const {
  const std::vector<std::int64_t> order = order_of(epoch);
  const std::int64_t end = consumed + positions_from(consumed);
  std::vector<std::int64_t> mine;
  mine.reserve(static_cast<std::size_t>((end - consumed) / options_.ranks + 1));
  for (std::int64_t i = consumed + options_.rank; i < end; i += options_.ranks) {
    // Padding starts over at the beginning of the order.
    mine.push_back(order[static_cast<std::size_t>(i % options_.examples)]);
  }
  return mine;
}

}  // namespace kolo
