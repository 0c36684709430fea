// SPDX-License-Identifier: Apache-2.0
#include "training/parameter_hashes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "base/dtype.hpp"
#include "base/format.hpp"
#include "base/rank_set.hpp"
#include "kolo/collectives.hpp"
#include "kolo/error.hpp"
#include "kolo/optimizer.hpp"
#include "training/agreement.hpp"

namespace kolo::internal {
namespace {

constexpr std::uint64_t prime1 = 0x9e3779b185ebca87;
constexpr std::uint64_t prime2 = 0xc2b2ae3d27d4eb4f;
constexpr std::uint64_t prime3 = 0x165667b19e3779f9;

constexpr std::uint64_t mixed(std::uint64_t lane, std::uint64_t word) {
  return std::rotl(lane + word * prime2, 31) * prime1;
}

constexpr std::uint64_t finished(std::uint64_t hash) {
  hash = (hash ^ (hash >> 33)) * prime2;
  hash = (hash ^ (hash >> 29)) * prime3;
  return hash ^ (hash >> 32);
}

// The hash of all of a rank's hashes.
std::uint64_t joint_hash(const std::vector<ParameterHash>& hashes) {
  std::uint64_t joint = prime3;
  for (const ParameterHash& one : hashes) joint = mixed(joint, one.hash);
  return finished(joint);
}

}  // namespace

std::uint64_t hash_of(std::span<const std::byte> bytes) noexcept {
  constexpr std::size_t word = sizeof(std::uint64_t);
  // The lanes do not depend on each other, so a processor computes them at the same time.
  std::array<std::uint64_t, 4> lanes{prime1 + prime2, prime2, 0, prime3};
  const std::uint64_t length = bytes.size();
  const auto take = [&](std::size_t lane, std::size_t taken) {
    std::uint64_t next = 0;
    std::memcpy(&next, bytes.data() + lane * word, taken);
    lanes[lane] = mixed(lanes[lane], next);
  };
  for (; bytes.size() >= sizeof lanes; bytes = bytes.subspan(sizeof lanes))
    for (std::size_t lane = 0; lane < lanes.size(); ++lane) take(lane, word);
  for (std::size_t lane = 0; lane * word < bytes.size(); ++lane)
    take(lane, std::min(word, bytes.size() - lane * word));
  std::uint64_t hash = length;
  for (const std::uint64_t lane : lanes) hash = mixed(hash, lane);
  return finished(hash);
}

std::vector<ParameterHash> hashes_of(const std::vector<NamedTensor>& tensors) {
  std::vector<ParameterHash> hashes;
  for (const auto& [name, tensor] : tensors) {
    const auto bytes = static_cast<std::size_t>(tensor.elements()) * size_of(tensor.dtype());
    const bool readable = tensor.device().type == DeviceType::cpu;
    hashes.push_back(
        {name, readable ? hash_of({static_cast<const std::byte*>(tensor.data()), bytes}) : 0});
  }
  return hashes;
}

// For each tensor, the hash and its complement: the sum of their maxima exceeds that of one rank if
// two ranks differ. Then one number for each rank, which only that rank sets: its joint hash.
std::vector<std::int32_t> encode(const std::vector<ParameterHash>& hashes, const ProcessSet& set) {
  std::vector<std::int32_t> numbers;
  numbers.reserve(encoded_size(hashes.size(), set));
  for (const ParameterHash& one : hashes) {
    numbers.push_back(number_of(one.hash));
    numbers.push_back(sum_of_complements - number_of(one.hash));
  }
  numbers.resize(encoded_size(hashes.size(), set), 0);
  if (const int mine = set.rank(); mine >= 0)
    numbers[2 * hashes.size() + static_cast<std::size_t>(mine)] = number_of(joint_hash(hashes));
  return numbers;
}

void require_equal_hashes(const std::vector<ParameterHash>& hashes,
                          std::span<const std::int32_t> maxima, const ProcessSet& set,
                          const std::string& subject, const std::string& cure) {
  if (std::ranges::count(maxima, 0) == std::ssize(maxima)) return;  // all ranks have abstained
  std::vector<std::string> differing;
  for (std::size_t i = 0; i < hashes.size(); ++i)
    if (maxima[2 * i] != sum_of_complements - maxima[2 * i + 1])
      differing.push_back(hashes[i].name);
  if (differing.empty()) return;
  const std::vector<int> members = set.ranks();
  const std::span<const std::int32_t> joint = maxima.subspan(2 * hashes.size());
  // The reference is the first rank that has not joined.
  const auto first = static_cast<std::size_t>(
      std::ranges::find_if(joint, [](std::int32_t one) { return one != 0; }) - joint.begin());
  std::vector<int> ranks;
  RankSet others;
  for (std::size_t i = first + 1; i < joint.size(); ++i) {
    if (joint[i] == 0 || joint[i] == joint[first]) continue;
    ranks.push_back(members[i]);
    others.insert(RankSet::of(members[i]));
  }
  throw Mismatch(
      fmt::format("{} differ between the ranks: '{}'{}. Differing from rank {}: {}. {}", subject,
                  differing.front(),
                  differing.size() == 1
                      ? std::string()
                      : fmt::format(", and {} more of {}", differing.size() - 1, hashes.size()),
                  members[first], to_string(others), cure),
      differing.front(), ranks);
}

void require_equal_hashes(const std::vector<ParameterHash>& hashes, const ProcessSet& set) {
  std::vector<std::int32_t> numbers = encode(hashes, set);
  allreduce(numbers, {.name = "kolo.require_equal", .op = ReduceOp::max, .process_set = set});
  require_equal_hashes(hashes, numbers, set, "require_equal: the tensors",
                       "kolo::broadcast_parameters copies those of one rank to all");
}

}  // namespace kolo::internal

namespace kolo {

void require_equal(const std::vector<NamedTensor>& tensors, const ProcessSet& set) {
  const std::vector<internal::Item> items = internal::items_of(tensors, "require_equal");
  for (const auto& [name, tensor] : tensors)
    if (tensor.device().type != DeviceType::cpu)
      throw InvalidArgument(
          fmt::format("require_equal: '{}' is in GPU memory. Copy it to the host", name), name);
  internal::require_agreement("kolo.require_equal.tensors", "The tensors", items, set);
  internal::require_equal_hashes(internal::hashes_of(tensors), set);
}

}  // namespace kolo
