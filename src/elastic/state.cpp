// SPDX-License-Identifier: Apache-2.0
// Commits: the ranks agree on them, copy them, and send them to each other.
//
// The ranks agree before they copy. A rank that passes the agreement knows that every rank has
// reached it, with all operations before it done. So if a rank is lost during the copies, some
// ranks have this commit and others the one before, and both are complete.
#include "elastic/state.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/rank_set.hpp"
#include "kolo/collectives.hpp"
#include "kolo/cuda.hpp"
#include "kolo/session.hpp"
#include "session/job/job.hpp"
#include "training/agreement.hpp"

namespace kolo::elastic {

using namespace internal;
namespace {

// A single maximum finds the newest commit and the lowest rank that has it: each rank contributes
// the number of its commit times this factor, plus the factor minus 1 minus its rank.
constexpr std::int64_t max_ranks = std::int64_t{1} << 20;

/// The parts as the ranks compare them: their names, and the shapes of their tensors.
template <typename Entries>
std::vector<Item> items_of_parts(const Entries& entries) {
  std::vector<Item> items;
  for (const auto& entry : entries) {
    const auto layout = entry.handler->layout();
    if (layout.empty()) items.push_back({entry.name, "a part"});
    for (const auto& [name, description] : layout)
      items.push_back({name.empty() ? entry.name : entry.name + '.' + name, description});
  }
  return items;
}

/// A hash of the parts, to compare them between ranks. Not negative, so that the ranks can also
/// compute its minimum as the maximum of its negative.
std::int64_t fingerprint(const std::vector<Item>& items) {
  std::uint64_t hash = 14695981039346656037U;  // FNV-1a
  for (const Item& item : items)
    for (const char c : item.name + '\t' + item.description + '\n')
      hash = (hash ^ static_cast<unsigned char>(c)) * std::uint64_t{1099511628211U};
  return static_cast<std::int64_t>(hash >> 1);
}

/// Collective. Throws Mismatch, which says which ranks are in which call.
[[noreturn]] void refuse_calls(std::int64_t own) {
  constexpr std::array names{"commit", "check_membership", "the end of train", "sync"};
  const std::vector<std::int64_t> calls =
      allgather(std::span(&own, 1), {.name = "kolo.elastic.calls"}).values;
  std::array<std::vector<int>, names.size()> ranks_in{};
  std::vector<int> differing;
  for (std::size_t rank = 0; rank < calls.size(); ++rank) {
    ranks_in.at(static_cast<std::size_t>(calls[rank])).push_back(static_cast<int>(rank));
    if (calls[rank] != calls.front()) differing.push_back(static_cast<int>(rank));
  }
  std::string places;
  for (std::size_t i = 0; i < names.size(); ++i)
    if (!ranks_in.at(i).empty())
      places += fmt::format("{}{} on {}", places.empty() ? "" : ", ", names.at(i),
                            ranks_in_words(RankSet::of(ranks_in.at(i))));
  throw Mismatch(fmt::format("kolo::elastic::State: the ranks call different functions: {}. All "
                             "ranks must call the same",
                             places),
                 "", differing);
}

}  // namespace

// ---- collective ----

State::Data::Meeting State::Data::meet(Call call, const Numbers& own) const {
  const auto what = static_cast<std::int64_t>(call);
  const bool changes = rank() == 0 && !session::this_job().membership.announced_change().empty();
  std::array<std::int64_t, 3 + std::tuple_size_v<Numbers>> numbers{changes ? 1 : 0, what, -what};
  std::ranges::copy(own, numbers.begin() + 3);
  allreduce(numbers, {.name = "kolo.elastic.agreement", .op = ReduceOp::max});
  if (numbers[1] != -numbers[2]) refuse_calls(what);
  Meeting meeting{.changes = numbers[0] != 0, .numbers{}};
  std::copy(numbers.begin() + 3, numbers.end(), meeting.numbers.begin());
  return meeting;
}

bool State::Data::agree(Call call) const { return meet(call, {}).changes; }

State::Data::Numbers State::Data::agree_to_sync(const Numbers& own) const {
  return meet(Call::sync, own).numbers;
}

void State::Data::distribute(int root, std::uint64_t number, bool keeps_per_rank) {
  std::vector<StateDict> received(entries.size());
  for (std::size_t i = 0; i < entries.size(); ++i) {
    std::string bytes;
    const auto encode = [&] {
      if (rank() == root) bytes = to_safetensors(entries[i].state);
    };
    share_failure(fmt::format("kolo.elastic.encode.{}", i),
                  fmt::format("kolo::elastic::State: part '{}': ", entries[i].name), encode, {});
    broadcast(bytes, root, {.name = fmt::format("kolo.elastic.part.{}", i)});
    if (rank() != root && commits != number) received[i] = from_safetensors(bytes);
  }
  if (commits == number) return;
  if (rank() != root) {
    for (std::size_t i = 0; i < entries.size(); ++i) {
      entries[i].state = std::move(received[i]);
      entries[i].has_per_rank = entries[i].has_per_rank && keeps_per_rank;
    }
  }
  commits = number;
}

// ---- this rank's parts ----

void State::Data::copy(std::uint64_t number) {
  // The collective calls come first: if a rank is lost during them, the last commit is still whole.
  std::vector<StateDict> gathered(entries.size());
  for (std::size_t i = 0; i < entries.size(); ++i)
    if (entries[i].handler->saves_together()) entries[i].handler->save(gathered[i]);
  // Work that the GPU has not done may fail, and values of failed work must not be committed.
  synchronize();
  commits = 0;  // until the copy is complete, there is no commit to restore
  for (std::size_t i = 0; i < entries.size(); ++i) {
    Entry& entry = entries[i];
    if (entry.handler->saves_together()) {
      entry.state = std::move(gathered[i]);
    } else {
      entry.handler->save(entry.state);
    }
    entry.handler->save_per_rank(entry.per_rank);
    entry.has_per_rank = true;
  }
  commits = number;
}

void State::Data::load() {
  for (Entry& entry : entries) try {
      entry.handler->load(entry.state);
      if (entry.has_per_rank) entry.handler->load_per_rank(entry.per_rank);
    } catch (const InvalidArgument& error) {
      throw InvalidArgument(
          fmt::format("kolo::elastic::State: part '{}': {}", entry.name, error.what()), entry.name);
    }
}

// ---- the public class ----

State::State() : data_(std::make_unique<Data>()) {}
State::State(State&&) noexcept = default;
State& State::operator=(State&&) noexcept = default;
State::~State() = default;

State& State::add(std::string name, TensorView memory) {
  return add(std::move(name), std::vector<NamedTensor>{{"", std::move(memory)}});
}

State& State::add(std::string name, std::vector<NamedTensor> tensors) {
  for (const auto& [tensor_name, tensor] : tensors)
    if (tensor.device().type != DeviceType::cpu)
      throw InvalidArgument(fmt::format("kolo::elastic::State::add: '{}' is in GPU memory: add the "
                                        "LibTorch tensor or module instead",
                                        name),
                            name);
  return add_handler(std::move(name), std::make_unique<detail::MemoryHandler>(std::move(tensors)));
}

State& State::add_handler(std::string name, std::unique_ptr<StateHandler> handler) {
  if (name.empty()) throw InvalidArgument("kolo::elastic::State::add: a part has no name");
  if (data_->runs)
    throw InvalidArgument(
        fmt::format("kolo::elastic::State::add: '{}' is added while kolo::elastic::run runs: add "
                    "all parts before",
                    name),
        name);
  if (std::ranges::find(data_->entries, name, &Data::Entry::name) != data_->entries.end())
    throw InvalidArgument(
        fmt::format("kolo::elastic::State::add: there is a part '{}' already", name), name);
  data_->entries.push_back({std::move(name), std::move(handler)});
  // The commit does not contain the new part, so it cannot be used any more.
  data_->commits = 0;
  return *this;
}

void State::on_reset(std::function<void()> call) { data_->resets.push_back(std::move(call)); }

void State::commit() {
  const bool changes = data_->agree(Data::Call::commit);
  data_->copy(data_->commits + 1);
  if (changes) throw MembershipChanged("ranks join or leave, so the session ends at this commit");
}

void State::check_membership() {
  if (!data_->agree(Data::Call::check_membership)) return;
  data_->copy(data_->commits + 1);
  throw MembershipChanged("ranks join or leave, so the session ends");
}

void State::restore() {
  if (data_->commits == 0) throw InvalidArgument("kolo::elastic::State::restore: no commit");
  data_->load();
}

void State::sync() {
  Data& data = *data_;
  const auto own = static_cast<std::int64_t>(data.commits);
  const std::vector<Item> items = items_of_parts(data.entries);
  const std::int64_t parts = fingerprint(items);
  const auto numbers =
      data.agree_to_sync({own * max_ranks + (max_ranks - 1 - rank()), -own, parts, -parts});
  if (numbers[2] != -numbers[3])
    require_agreement("kolo.elastic.parts", "The parts of kolo::elastic::State", items);
  for (Data::Entry& entry : data.entries) entry.handler->rejoin();
  const std::int64_t newest = numbers[0] / max_ranks;
  int root = static_cast<int>(max_ranks - 1 - numbers[0] % max_ranks);
  const bool all_have_it = -numbers[1] == newest;
  if (newest == 0) {
    // No rank has a commit, so all ranks take the state of rank 0. If rank 0 is lost before they
    // have it, they take that of the next session's rank 0.
    root = 0;
    data.copy(0);
    data.distribute(root, 1, /*keeps_per_rank=*/true);
  } else if (!all_have_it) {
    data.distribute(root, static_cast<std::uint64_t>(newest), /*keeps_per_rank=*/false);
  }
  data.load();
}

std::uint64_t State::commits() const noexcept { return data_->commits; }

}  // namespace kolo::elastic
