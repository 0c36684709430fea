// SPDX-License-Identifier: Apache-2.0
#include "kolo/training/checkpoint.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "base/rank_set.hpp"
#include "kolo/collectives.hpp"
#include "kolo/cuda.hpp"
#include "kolo/session.hpp"
#include "training/agreement.hpp"
#include "training/checkpoint/checkpoint_directory.hpp"
#include "training/checkpoint/checkpoint_save.hpp"
#include "training/checkpoint/deferred_save.hpp"
#include "training/checkpoint/load_checkpoint.hpp"
#include "training/checkpoint/part_names.hpp"
#include "training/checkpoint/save_plan.hpp"
#include "training/checkpoint/shared_errors.hpp"
#include "training/require.hpp"
#include "training/safetensors/disk_file.hpp"
#include "training/safetensors/safetensors.hpp"

namespace kolo {

using namespace internal;
namespace {

namespace fs = std::filesystem;

std::string unlikely_key() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

const StateView& part_of(const NamedViews& parts, const std::string& name, const fs::path& path) {
  const auto found = parts.find(name);
  if (found != parts.end()) return found->second;
  throw CheckpointError(CheckpointFault::incomplete, path,
                        fmt::format("checkpoint '{}' has no part '{}'", path.string(), name));
}

std::vector<fs::path> paths_of(const std::vector<CheckpointDirectory::Entry>& entries) {
  std::vector<fs::path> paths;
  for (const CheckpointDirectory::Entry& entry : entries) paths.push_back(entry.path);
  return paths;
}

}  // namespace

const StateView& Checkpoint::part(const std::string& name) const {
  return part_of(parts, name, path);
}

const StateView& Checkpoint::per_rank_part(const std::string& name) const {
  return part_of(per_rank, name, path);
}

std::vector<StateView> Checkpoint::per_rank_parts(const std::string& name) const {
  std::vector<StateView> found;
  for (const NamedViews& own : of_ranks)
    if (const auto part = own.find(name); part != own.end()) found.push_back(part->second);
  if (found.empty()) static_cast<void>(part_of({}, name, path));  // throws
  return found;
}

// ---- saving ----

class Checkpointer::State {
 public:
  explicit State(CheckpointerOptions options) : directory_(std::move(options)) {}

  [[nodiscard]] const CheckpointDirectory& directory() const { return directory_; }
  [[nodiscard]] const fs::path& path() const { return directory_.path(); }

  /// Collective. Ends what `save_async` has begun before, plans a save, and makes its folder.
  SaveJob begin(std::int64_t step, const DeferredSave::Contents& contents) {
    StateView shared, own;
    std::optional<double> metric;
    Report report = report_before();
    report.step = std::to_string(step);
    report.unwritable = failure_of([&] {
      const auto [parts, extras] = contents();
      metric = extras.metric;
      shared = flatten(parts);
      own = flatten(extras.per_rank, rank());
      require_writable(shared);
      require_writable(own);
    });
    const std::vector<Report> all = exchange(report);
    settle(all);
    require_writable_on_all(all);
    require_equal_steps(all);

    SaveJob job = begin_folder(step);
    if (rank() == 0) job.header.metric = metric;
    std::error_code error;
    const SaveOffer offer{.sees_folder = fs::is_directory(job.folder, error),
                          .layout = layout_of(shared)};
    std::vector<SaveOffer> offers;
    for (const std::string& text : allgather(offer.to_text(), {.name = "kolo.checkpoint.offer"}))
      offers.push_back(SaveOffer::from_text(text));
    SavePlan plan = plan_save(offers, rank(), std::move(shared), own);
    take_from_blind(offers, own, plan.state);
    job.header.files = plan.files;
    job.file = plan.file;
    job.state = std::move(plan.state);
    if (rank() == 0)
      job.publish = [directory = directory_, folder = job.folder, header = job.header] {
        directory.publish(folder, header);
      };
    return job;
  }

  /// Collective.
  void write(const SaveJob& job) {
    const std::string error = first_error(job.folder, [&] { job.write(); });
    if (!error.empty() && rank() == 0) CheckpointDirectory::give_up(job.folder);
    if (!error.empty()) throw_from(error);
    on_rank_0(job.folder, [&] {
      publish_now(job);
      return std::string();
    });
  }

  /// Not collective. What fails here is thrown by the next call on all ranks, as what fails later.
  void write_in_background(SaveJob job) {
    const std::string failure = failure_of([&] { copy_tensors(job.state); });
    if (!failure.empty()) job.state = failing(failure);
    pending_ = std::make_unique<BackgroundSave>(std::move(job));
  }

  [[nodiscard]] bool is_busy() const { return pending_ && pending_->is_writing(); }

  /// Collective. Ends what `save_async` has begun. Throws its error on all ranks.
  void settle() { settle(exchange(report_before())); }

 private:
  /// The message of each rank to the others at the beginning of each call.
  struct Report {
    bool takes_part = false;   // false for a rank that has joined
    std::string key{};         // the key of the save whose file it has written, or could not write
    std::string error{};       // the error of that file, as a text
    bool publishes = false;    // this rank makes that save a checkpoint
    std::string step{};        // the step of the save that begins now
    std::string unwritable{};  // why its parts cannot be saved
  };

  [[nodiscard]] Report report_before() {
    Report report{.takes_part = true};
    if (!pending_ || pending_->job().file < 0) return report;
    const std::optional<CheckpointError> failure = pending_->wait_for_file();
    report.key = pending_->job().header.key;
    report.error = failure ? to_text(*failure) : "";
    report.publishes = static_cast<bool>(pending_->job().publish);
    return report;
  }

  /// Collective.
  static std::vector<Report> exchange(const Report& own) {
    const nlohmann::json text{own.key, own.error, own.publishes, own.step, own.unwritable};
    std::vector<Report> all;
    constexpr auto replace = nlohmann::json::error_handler_t::replace;  // texts of the system
    for (const std::string& each :
         allgather(text.dump(-1, ' ', false, replace), {.name = "kolo.checkpoint.report"})) {
      Report& report = all.emplace_back();
      if (each.empty()) continue;
      const auto parsed = nlohmann::json::parse(each);
      report = {true, parsed[0], parsed[1], parsed[2], parsed[3], parsed[4]};
    }
    return all;
  }

  /// Collective. The rank that publishes may no longer be rank 0, or may be gone: then the save is
  /// given up, like the files of earlier saves that ranks report late because they had joined.
  void settle(const std::vector<Report>& all) {
    const auto any = std::ranges::find_if(all, [](const Report& one) { return !one.key.empty(); });
    if (any == all.end()) return pending_.reset();
    const std::unique_ptr<BackgroundSave> ended = std::move(pending_);
    const auto publisher = std::ranges::find_if(all, &Report::publishes);
    if (publisher == all.end() && any - all.begin() == rank())
      warn(fmt::format("checkpoint '{}' is given up: the rank that publishes it has left",
                       ended->job().folder.string()));
    std::string failure = first_error(path(), [&] {
      if (ended && ended->job().publish) finish(*ended, all);
    });
    for (const Report& one : all)
      if (publisher != all.end() && one.key == publisher->key && failure.empty())
        failure = one.error;
    if (ended) static_cast<void>(ended->finish(BackgroundSave::Others::are_gone));  // no news
    if (!failure.empty()) throw_from(failure);
  }

  /// On the rank that publishes, after all ranks that are left have written. A rank that has joined
  /// may still write.
  static void finish(BackgroundSave& save, const std::vector<Report>& all) {
    int written = 0;
    bool has_joined = false;
    for (const Report& one : all) {
      has_joined |= !one.takes_part;
      if (one.key != save.job().header.key) continue;
      if (!one.error.empty()) return;  // which is thrown
      ++written;
    }
    const bool all_are_there = written >= save.job().header.files;
    const std::optional<CheckpointError> failure =
        save.finish(all_are_there ? BackgroundSave::Others::have_written
                    : has_joined  ? BackgroundSave::Others::may_end
                                  : BackgroundSave::Others::may_be_gone);
    if (failure && all_are_there) throw *failure;
    if (failure) warn(fmt::format("{}: its rank has left or joined", failure->what()));
  }

  static void require_equal_steps(const std::vector<Report>& all) {
    std::vector<int> ranks;
    for (std::size_t each = 0; each < all.size(); ++each)
      if (all[each].takes_part && all[each].step != all.front().step)
        ranks.push_back(static_cast<int>(each));
    if (ranks.empty()) return;
    throw InvalidArgument(
        fmt::format("kolo::Checkpointer: the step is {} on rank 0 and {} on {}", all.front().step,
                    all[static_cast<std::size_t>(ranks.front())].step,
                    ranks_in_words(RankSet::of(ranks))),
        {}, ranks);
  }

  static void require_writable_on_all(const std::vector<Report>& all) {
    std::vector<int> ranks;
    std::string message;
    for (std::size_t each = 0; each < all.size(); ++each) {
      if (all[each].unwritable.empty()) continue;
      ranks.push_back(static_cast<int>(each));
      if (message.empty()) message = all[each].unwritable;
    }
    if (ranks.empty()) return;
    throw InvalidArgument(fmt::format("kolo::Checkpointer: the parts cannot be saved: {} (on {})",
                                      message, ranks_in_words(RankSet::of(ranks))),
                          {}, ranks);
  }

  /// Collective. Makes the folder, and chooses the key that all files state.
  [[nodiscard]] SaveJob begin_folder(std::int64_t step) const {
    const std::string begun = on_rank_0(
        directory_.path_of(step), [&] { return unlikely_key() + directory_.begin(step).string(); });
    const std::size_t key_length = unlikely_key().size();
    SaveJob job{.folder = begun.substr(key_length), .header = {.step = step, .ranks = size()}};
    job.header.key = begun.substr(0, key_length);
    return job;
  }

  /// Collective, if some ranks do not see the folder. Rank 0 gets their per-rank parts, one rank's
  /// after the other's. Throws CheckpointError on all ranks.
  static void take_from_blind(const std::vector<SaveOffer>& offers, const StateView& own,
                              StateView& state) {
    for (std::size_t each = 0; each < offers.size(); ++each) {
      if (offers[each].layout.empty() || offers[each].sees_folder) continue;
      const bool is_me = static_cast<int>(each) == rank();
      std::string bytes;
      std::string error = first_error({}, [&] {
        if (is_me) bytes = to_safetensors(own.copy());
      });
      if (error.empty()) {
        broadcast(bytes, static_cast<int>(each), {.name = "kolo.checkpoint.blind"});
        error = first_error({}, [&] {
          if (rank() == 0) merge(state, from_safetensors(bytes));
        });
      }
      if (!error.empty()) throw_from(error);
    }
  }

  /// A state whose file cannot be written.
  static StateView failing(const std::string& why) {
    StateView state;
    state.tensors.emplace("", TensorSource(DType::u8, Shape{1}, [why](auto, auto) {
                            throw Error("its tensors could not be copied: " + why);
                          }));
    return state;
  }

  static void publish_now(const SaveJob& job) {
    try {
      job.publish();
    } catch (...) {
      CheckpointDirectory::give_up(job.folder);
      throw;
    }
  }

  /// Copies the tensors into the memory that is kept from save to save.
  void copy_tensors(StateView& state) {
    std::uint64_t bytes = 0;
    for (const auto& [name, tensor] : state.tensors) bytes += tensor.bytes();
    if (bytes > capacity_ || bytes < capacity_ / 2) {
      copy_.reset();
      capacity_ = 0;
      copy_ = std::make_unique_for_overwrite<char[]>(bytes);
      capacity_ = bytes;
    }
    char* to = copy_.get();
    for (auto& [name, tensor] : state.tensors) {
      const std::uint64_t size = tensor.bytes();
      tensor.read(0, {to, size});
      tensor.read = [from = to](std::uint64_t begin, std::span<char> into) {
        if (!into.empty()) std::memcpy(into.data(), from + begin, into.size());
      };
      to += size;
    }
  }

  CheckpointDirectory directory_;
  std::unique_ptr<char[]> copy_{};
  std::uint64_t capacity_ = 0;
  std::unique_ptr<BackgroundSave> pending_{};  // reads the copy, so it is declared after it
};

Checkpointer::Checkpointer(CheckpointerOptions options) {
  require(!options.directory.empty(), "kolo::Checkpointer: the directory is empty");
  require(!options.prefix.empty() && options.prefix.find('/') == std::string::npos,
          "kolo::Checkpointer: prefix must be the start of a folder's name, but is '{}'",
          options.prefix);
  require(options.keep_last >= 1, "kolo::Checkpointer: keep_last must be at least 1, but is {}",
          options.keep_last);
  std::error_code unknown;  // the working directory was removed: the path stays as it is
  if (fs::path full = fs::absolute(options.directory, unknown); !unknown)
    options.directory = std::move(full);
  state_ = std::make_unique<State>(std::move(options));
}

Checkpointer::Checkpointer(Checkpointer&&) noexcept = default;
Checkpointer& Checkpointer::operator=(Checkpointer&&) noexcept = default;
Checkpointer::~Checkpointer() = default;

fs::path DeferredSave::save(Checkpointer& checkpointer, std::int64_t step,
                            const Contents& contents) {
  require(step >= 0, "kolo::Checkpointer: step must not be negative, but is {}", step);
  synchronize();  // what has failed on the GPU must not be saved
  const SaveJob job = checkpointer.state_->begin(step, contents);
  checkpointer.state_->write(job);
  return finished_name(job.folder);
}

std::optional<fs::path> DeferredSave::save_async(Checkpointer& checkpointer, std::int64_t step,
                                                 const Contents& contents, IfBusy if_busy) {
  require(step >= 0, "kolo::Checkpointer: step must not be negative, but is {}", step);
  Checkpointer::State& state = *checkpointer.state_;
  if (if_busy == IfBusy::refuse && !ranks_that(state.is_busy(), "kolo.checkpoint.busy").empty())
    return std::nullopt;
  synchronize();
  SaveJob job = state.begin(step, contents);
  fs::path folder = finished_name(job.folder);
  state.write_in_background(std::move(job));
  return folder;
}

fs::path Checkpointer::save(std::int64_t step, const NamedViews& parts,
                            const CheckpointExtras& extras) {
  return DeferredSave::save(*this, step, [&] { return std::pair(parts, extras); });
}

std::optional<fs::path> Checkpointer::save_async(std::int64_t step, const NamedViews& parts,
                                                 const CheckpointExtras& extras, IfBusy if_busy) {
  return DeferredSave::save_async(
      *this, step, [&] { return std::pair(parts, extras); }, if_busy);
}

void Checkpointer::wait() { state_->settle(); }

std::optional<Checkpoint> Checkpointer::load_latest() const {
  state_->settle();
  return load_first(state_->path(), IfDamaged::skip,
                    [&] { return paths_of(state_->directory().by_age()); });
}

std::optional<Checkpoint> Checkpointer::load_best() const {
  state_->settle();
  return load_first(state_->path(), IfDamaged::skip,
                    [&] { return paths_of(state_->directory().by_metric()); });
}

std::optional<fs::path> Checkpointer::latest() const {
  const std::optional<Checkpoint> found = load_latest();
  if (!found) return std::nullopt;
  return found->path;
}

Checkpoint Checkpointer::load(const fs::path& path) {
  return load_first(path, IfDamaged::fail, [&] { return std::vector<fs::path>{path}; }).value();
}

}  // namespace kolo
