// SPDX-License-Identifier: Apache-2.0
#include "training/agreement.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <sstream>
#include <unordered_set>
#include <utility>

#include "base/failure.hpp"
#include "base/format.hpp"
#include "base/rank_set.hpp"
#include "kolo/collectives.hpp"
#include "kolo/error.hpp"
#include "kolo/session.hpp"

namespace kolo::internal {
namespace {

// The items as text, one per line: name, tab, description.
std::string to_text(const std::vector<Item>& items) {
  std::string text;
  for (const Item& item : items) text += item.name + '\t' + item.description + '\n';
  return text;
}

std::vector<Item> from_text(const std::string& text) {
  std::vector<Item> items;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t tab = line.rfind('\t');  // the last tab: a name may contain tabs
    items.push_back({line.substr(0, tab), line.substr(tab + 1)});
  }
  return items;
}

bool contains(const std::vector<Item>& items, const std::string& name) {
  return std::any_of(items.begin(), items.end(),
                     [&](const Item& item) { return item.name == name; });
}

// Finds the first item that differs between rank `reference` and this rank. The description of the
// returned item says how it differs.
Item first_difference(int reference, const std::vector<Item>& theirs,
                      const std::vector<Item>& mine) {
  const std::string their_rank = "rank " + std::to_string(reference);
  const std::string my_rank = "rank " + std::to_string(rank());
  const auto only_on = [](const Item& item, const std::string& where) {
    return Item{item.name,
                "'" + item.name + "' (" + item.description + ") is on " + where + " only"};
  };
  const std::size_t common = std::min(theirs.size(), mine.size());
  for (std::size_t i = 0; i < common; ++i) {
    const Item& a = theirs[i];
    const Item& b = mine[i];
    if (a.name == b.name && a.description == b.description) continue;
    if (a.name == b.name) {
      return {a.name, "'" + a.name + "' is " + a.description + " on " + their_rank + " and " +
                          b.description + " on " + my_rank};
    }
    if (!contains(mine, a.name)) return only_on(a, their_rank);
    if (!contains(theirs, b.name)) return only_on(b, my_rank);
    return {b.name, "number " + std::to_string(i) + " is '" + a.name + "' on " + their_rank +
                        " and '" + b.name + "' on " + my_rank};
  }
  if (theirs.size() > common) return only_on(theirs[common], their_rank);
  return only_on(mine[common], my_rank);
}

}  // namespace

std::vector<Item> items_of(const std::vector<NamedTensor>& tensors, const std::string& subject) {
  std::unordered_set<std::string> seen;
  std::vector<Item> items;
  for (const auto& [name, tensor] : tensors) {
    if (name.empty()) throw InvalidArgument(subject + ": a tensor has no name");
    if (!seen.insert(name).second)
      throw InvalidArgument(fmt::format("{}: two tensors are named '{}'", subject, name), name);
    items.push_back(
        {name, fmt::format("{} {}", to_string(tensor.dtype()), to_string(tensor.shape()))});
  }
  return items;
}

std::vector<int> ranks_that(bool said_so, const std::string& operation, const ProcessSet& set) {
  // Each rank sets only its own element, so the sum is the list of all answers. This takes one
  // collective, and every rank gets the same list.
  const std::vector<int> members = set.ranks();
  std::vector<std::int64_t> answers(members.size(), 0);
  const int mine = set.rank();
  if (mine >= 0) answers[static_cast<std::size_t>(mine)] = said_so ? 1 : 0;
  allreduce(answers, {.name = operation, .op = ReduceOp::sum, .process_set = set});
  std::vector<int> ranks;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    if (answers[i] != 0) ranks.push_back(members[i]);
  }
  return ranks;
}

void require_agreement(const std::string& operation, const std::string& subject,
                       const std::vector<Item>& items, const ProcessSet& set) {
  // The first rank's list is the reference. Comparing with it costs one broadcast, where gathering
  // all lists would grow with the number of ranks.
  const int first = set.ranks().front();
  const std::string mine = to_text(items);
  std::string reference = mine;
  broadcast(reference, first, {.name = operation, .process_set = set});
  const std::vector<int> differing = ranks_that(reference != mine, operation + ".differs", set);
  if (differing.empty()) return;

  // All ranks know that there is a difference, but only a differing rank has both lists. The lowest
  // of these ranks describes the difference, so that all ranks throw the same message.
  const int witness = differing.front();
  std::string report;
  if (rank() == witness) report = to_text({first_difference(first, from_text(reference), items)});
  broadcast(report, witness, {.name = operation + ".report", .process_set = set});

  const Item difference = from_text(report).front();
  throw Mismatch(subject + " differ between the ranks: " + difference.description +
                     ". Differing from rank " + std::to_string(first) + ": " +
                     to_string(RankSet::of(differing)) + ".",
                 difference.name, differing);
}

void require_root(const std::string& function, int root, const ProcessSet& set) {
  if (set.contains(root)) return;
  throw InvalidArgument(function + ": the root " + std::to_string(root) +
                        " is not one of the ranks " + to_string(RankSet::of(set.ranks())));
}

std::string failure_of(const std::function<void()>& work) {
  try {
    work();
    return {};
  } catch (const PeerLeft&) {
    throw;
  } catch (const Stalled&) {
    throw;
  } catch (const ShutDown&) {
    throw;
  } catch (const BackendError&) {
    throw;
  } catch (const NotInitialized&) {
    throw;
  } catch (...) {
    return message_of_current_exception();
  }
}

FailedRanks failed_ranks(const std::string& operation, const std::function<void()>& work,
                         const ProcessSet& set) {
  std::string failure = failure_of(work);
  std::vector<int> ranks = ranks_that(!failure.empty(), operation, set);
  if (ranks.empty()) return {};
  // All ranks get the message of the same rank, so that logs agree.
  broadcast(failure, ranks.front(), {.name = operation + ".failure", .process_set = set});
  std::string message = fmt::format("{} (on {})", failure, ranks_in_words(RankSet::of(ranks)));
  return {.ranks = std::move(ranks), .message = std::move(message)};
}

void share_failure(const std::string& operation, const std::string& context,
                   const std::function<void()>& work, const ProcessSet& set) {
  const FailedRanks failed = failed_ranks(operation, work, set);
  if (failed.ranks.empty()) return;
  const bool has_context = failed.message.starts_with(context);
  throw Error((has_context ? std::string() : context) + failed.message, {}, failed.ranks);
}

}  // namespace kolo::internal

namespace kolo {

using namespace internal;

void on_every_rank(const std::function<void()>& work, const ProcessSet& set) {
  share_failure("kolo.on_every_rank", {}, work, set);
}

void on_one_rank(int root, const std::function<void()>& work, const ProcessSet& set) {
  require_root("on_one_rank", root, set);
  // While the root works, the other ranks wait in the broadcast.
  std::string failure;
  if (rank() == root) failure = failure_of(work);
  broadcast(failure, root, {.name = "kolo.on_one_rank", .process_set = set});
  if (!failure.empty()) {
    throw Error(failure + " (on rank " + std::to_string(root) + ")", {}, {root});
  }
}

}  // namespace kolo
