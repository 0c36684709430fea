// SPDX-License-Identifier: Apache-2.0
#include "training/checkpoint/load_checkpoint.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <exception>
#include <set>
#include <string>
#include <utility>

#include "base/log.hpp"
#include "kolo/collectives.hpp"
#include "kolo/session.hpp"
#include "training/agreement.hpp"
#include "training/checkpoint/checkpoint_files.hpp"
#include "training/checkpoint/checkpoint_header.hpp"
#include "training/checkpoint/part_names.hpp"
#include "training/checkpoint/shared_errors.hpp"

namespace kolo::internal {
namespace {

namespace fs = std::filesystem;

// The checkpoint at a path as this rank sees it.
struct Found {
  CheckpointSet set{};
  StateView view{};  // of all files
  Parts parts{};
};

Found find(const fs::path& path) {
  Found found{.set = find_checkpoint(path)};
  found.view = view_checkpoint(found.set);
  found.parts = parts_in(found.set, found.view);
  return found;
}

// Finds the checkpoint on another rank than 0. Returns nothing if this rank does not see the one
// that rank 0 has found: it may see none, or another one at this path.
std::optional<Found> find_same(const std::string& identity, const fs::path& path) {
  try {
    Found found = find(path);
    if (found.set.identity == identity) return found;
  } catch (const std::exception&) {  // rank 0 sends it
  }
  return std::nullopt;
}

// Collective. Verifies the files of the checkpoint that rank 0 has found, each on one of the ranks
// that see it. Returns the first error as a text; "" if there is none.
std::string verify_together(const fs::path& path, const std::optional<Found>& found,
                            const std::vector<int>& readers) {
  const auto mine = std::ranges::find(readers, rank());
  return first_error(path, [&] {
    if (!found || mine == readers.end()) return;
    const auto first = static_cast<std::size_t>(mine - readers.begin());
    for (std::size_t file = first; file < found->set.files.size(); file += readers.size())
      verify_checkpoint_file(found->set.files[file]);
  });
}

// Collective. Sends rank 0's checkpoint to the ranks that do not see it, as one file in memory.
// Returns the first error as a text.
std::string send_to_blind(const fs::path& path, std::optional<Found>& found) {
  std::string bytes;
  std::string error = first_error(path, [&] {
    if (rank() == 0) bytes = to_safetensors(found->view.copy());
  });
  if (!error.empty()) return error;
  broadcast(bytes, 0, {.name = "kolo.checkpoint.file"});
  return first_error(path, [&] {
    if (found) return;
    Found sent{.set = {.path = path}, .view = from_safetensors(bytes)};
    sent.set.header = header_from(sent.view.metadata);
    sent.parts = parts_in(sent.set, sent.view);
    found = std::move(sent);
  });
}

Checkpoint checkpoint_of(const fs::path& path, Found& found) {
  const CheckpointHeader& header = found.set.header;
  Checkpoint checkpoint{.step = header.step,
                        .metric = header.metric,
                        .ranks = header.ranks,
                        .parts = std::move(found.parts.shared),
                        .of_ranks = std::move(found.parts.per_rank),
                        .path = path};
  // Per-rank parts belong to the ranks of a world of the saved size. In a world of another size
  // they have no owner.
  if (checkpoint.ranks == size())
    checkpoint.per_rank = checkpoint.of_ranks[static_cast<std::size_t>(rank())];
  return checkpoint;
}

/// Goes through the candidates on rank 0. If some have gone meanwhile, because a job that saves has
/// removed them, there are newer ones: it lists them again.
class Search {
 public:
  using FindAll = std::function<std::vector<fs::path>()>;

  Search(FindAll find_all, IfDamaged if_damaged)
      : find_all_(std::move(find_all)), if_damaged_(if_damaged), candidates_(find_all_()) {}

  /// The next candidate whose headers are right.
  std::optional<Found> next() {
    while (next_ < candidates_.size() || lists_again()) {
      const fs::path& path = candidates_[next_++];
      try {
        return find(path);
      } catch (const CheckpointError& error) {
        if (if_damaged_ == IfDamaged::fail) throw;
        skip(error.what());
      }
    }
    return std::nullopt;
  }

  void skip(const std::string& error) {
    has_gone_ |= !fs::exists(candidates_[next_ - 1]);
    if (reported_.insert(error).second) warn(error + ": skipped");
  }

 private:
  static constexpr int max_lists = 20;

  bool lists_again() {
    if (!std::exchange(has_gone_, false) || ++lists_ > max_lists) return false;
    candidates_ = find_all_();
    next_ = 0;
    return !candidates_.empty();
  }

  FindAll find_all_;
  IfDamaged if_damaged_;
  std::vector<fs::path> candidates_;
  std::size_t next_ = 0;
  bool has_gone_ = false;  // one of the candidates
  int lists_ = 1;
  std::set<std::string> reported_{};
};

}  // namespace

std::optional<Checkpoint> load_first(const fs::path& where, IfDamaged if_damaged,
                                     const std::function<std::vector<fs::path>()>& find_all) {
  std::optional<Search> search;
  while (true) {
    std::optional<Found> found;
    const std::string identity = on_rank_0(where, [&] {
      if (!search) search.emplace(find_all, if_damaged);
      found = search->next();
      return found ? found->set.identity : std::string();
    });
    if (identity.empty()) return std::nullopt;
    const fs::path path = on_rank_0(where, [&] { return found->set.path.string(); });
    if (rank() != 0) found = find_same(identity, path);
    const std::vector<int> readers = ranks_that(found.has_value(), "kolo.checkpoint.readers");
    std::string error = verify_together(path, found, readers);
    if (error.empty() && readers.size() < static_cast<std::size_t>(size()))
      error = send_to_blind(path, found);
    if (error.empty()) return checkpoint_of(path, *found);
    if (if_damaged == IfDamaged::fail) throw_from(error);
    if (rank() == 0) search->skip(message_in(error));
  }
}

}  // namespace kolo::internal
