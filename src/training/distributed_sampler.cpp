#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <random>
#include <utility>

#include "kolo/error.hpp"
#include "kolo/session.hpp"
#include "kolo/training.hpp"

namespace kolo {
namespace {

// Fisher and Yates' shuffle, written out because the standard leaves std::shuffle's order open, and
// ranks may run binaries of different compilers. The bias of the modulo is below examples / 2^64.
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

}  // namespace

DistributedSampler::DistributedSampler(const DistributedSamplerOptions& options)
    : options_(options) {
  if (options_.ranks == -1) options_.ranks = size();
  if (options_.rank == -1) options_.rank = rank();
  if (options_.examples < 0) {
    throw InvalidArgument(fmt::format(
        "kolo::DistributedSampler: examples must not be negative, but is {}", options_.examples));
  }
  if (options_.ranks < 1 || options_.rank < 0 || options_.rank >= options_.ranks) {
    throw InvalidArgument(
        fmt::format("kolo::DistributedSampler: there is no rank {} among {} ranks", options_.rank,
                    options_.ranks));
  }
}

std::vector<std::int64_t> DistributedSampler::indices(std::int64_t epoch) const {
  std::vector<std::int64_t> order(static_cast<std::size_t>(options_.examples));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  if (options_.shuffle) shuffle(order, options_.seed, epoch);

  // The ranks take turns, so that step k of all ranks together covers neighbours in the order.
  const std::int64_t ranks = options_.ranks;
  const std::int64_t shared = options_.even ? options_.examples / ranks * ranks : options_.examples;
  std::vector<std::int64_t> mine;
  mine.reserve(static_cast<std::size_t>(shared / ranks + 1));
  for (std::int64_t position = options_.rank; position < shared; position += ranks) {
    mine.push_back(order[static_cast<std::size_t>(position)]);
  }
  return mine;
}

}  // namespace kolo
