// SPDX-License-Identifier: Apache-2.0
#include "training/checkpoint/checkpoint_directory.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>
#include <string_view>
#include <system_error>
#include <tuple>

#include "base/log.hpp"
#include "training/checkpoint/checkpoint_files.hpp"
#include "training/safetensors/disk_file.hpp"

namespace kolo::internal {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const fs::path& directory, const char* what, const std::error_code& error) {
  throw CheckpointError(CheckpointFault::io, directory,
                        fmt::format("cannot {} the directory '{}' of checkpoints: {}", what,
                                    directory.string(), error.message()));
}

std::vector<fs::path> files_in(const fs::path& directory) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator i(directory, error), end; !error && i != end; i.increment(error)) {
    files.push_back(i->path());
  }
  if (error && error != std::errc::no_such_file_or_directory) fail(directory, "read", error);
  return files;
}

void remove_or_warn(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) warn(fmt::format("cannot remove '{}': {}", path.string(), error.message()));
}

// Gives the checkpoint another name first: while its files go, it is none any more.
void remove_checkpoint(const fs::path& path) {
  const fs::path unfinished = unfinished_name(path);
  std::error_code error;
  fs::rename(path, unfinished, error);
  remove_or_warn(error ? path : unfinished);
}

// Replaces `path`. If it exists, the two names are exchanged, so that there is always a checkpoint
// of this name. File systems that cannot do that, such as NFS, have none for the time between two
// calls; the old one goes only after that.
void rename_over(const fs::path& folder, const fs::path& path) {
  std::error_code error;
  fs::rename(folder, path, error);
  if (!error) return flush_directory_of(path);
  if (fs::exists(fs::symlink_status(path))) {
    if (::renameat2(AT_FDCWD, folder.c_str(), AT_FDCWD, path.c_str(), RENAME_EXCHANGE) == 0) {
      flush_directory_of(path);
      return remove_or_warn(folder);
    }
    const fs::path old = unfinished_name(path);
    std::error_code ignored;
    fs::rename(path, old, error);
    if (!error) fs::rename(folder, path, error);
    if (error) fs::rename(old, path, ignored);
    flush_directory_of(path);
    if (!error) return remove_or_warn(old);
  }
  throw CheckpointError(CheckpointFault::io, path,
                        fmt::format("cannot rename checkpoint '{}' to '{}': {}", folder.string(),
                                    path.string(), error.message()));
}

}  // namespace

// Zeros pad the step so that listings sort by step; reading accepts any number of digits.
fs::path CheckpointDirectory::path_of(std::int64_t step) const {
  return options_.directory / fmt::format("{}-{:010}", options_.prefix, step);
}

fs::path CheckpointDirectory::begin(std::int64_t step) const {
  std::error_code error;
  fs::create_directories(options_.directory, error);
  if (error) fail(options_.directory, "make", error);
  remove_unfinished();  // before writing: the new files may need the space
  const fs::path folder = unfinished_name(path_of(step));
  fs::create_directory(folder, error);
  if (error) fail(folder, "make", error);
  return folder;
}

// Old checkpoints go only after the new one is complete: at every moment there is a valid one.
void CheckpointDirectory::publish(const fs::path& folder, const CheckpointHeader& header) const {
  const fs::path path = path_of(header.step);
  CheckpointHeader complete = header;
  complete.serial = next_serial();
  write_checkpoint_index(folder, complete);
  rename_over(folder, path);
  prune(path);
}

void CheckpointDirectory::give_up(const fs::path& folder) { remove_or_warn(folder); }

std::optional<std::int64_t> CheckpointDirectory::step_of(const fs::path& path) const {
  const std::string name = path.filename().string();
  std::string_view digits = name;
  const std::string start = options_.prefix + '-';
  if (!digits.starts_with(start)) return std::nullopt;
  digits.remove_prefix(start.size());
  if (!digits.empty() && digits.front() == '-') return std::nullopt;  // the prefix is longer
  std::int64_t step = 0;
  const char* end = digits.data() + digits.size();
  const auto [stopped, error] = std::from_chars(digits.data(), end, step);
  if (error != std::errc() || stopped != end || step < 0) return std::nullopt;
  return step;
}

std::vector<CheckpointDirectory::Entry> CheckpointDirectory::by_step() const {
  std::vector<Entry> entries;
  for (const fs::path& path : files_in(options_.directory)) {
    if (const auto step = step_of(path)) entries.push_back({.path = path, .step = *step});
  }
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.step > b.step; });
  return entries;
}

// Fills in the metric and the serial number. Returns false if the index or the header of a file is
// damaged.
bool CheckpointDirectory::read_header_of(Entry& entry) {
  try {
    const CheckpointSet set = find_checkpoint(entry.path);
    static_cast<void>(view_checkpoint(set));
    entry.metric = set.header.metric;
    entry.serial = set.header.serial;
    return true;
  } catch (const CheckpointError&) {
    return false;
  }
}

// A damaged checkpoint does not count among those to keep. It is not removed either: loading
// reports it, and the user may be able to repair it.
std::vector<CheckpointDirectory::Entry> CheckpointDirectory::with_good_headers() const {
  std::vector<Entry> good = by_step();
  std::erase_if(good, [](Entry& entry) { return !read_header_of(entry); });
  // Steps do not tell the age: after a return to an older checkpoint, lower steps are newer.
  std::stable_sort(good.begin(), good.end(),
                   [](const Entry& a, const Entry& b) { return a.serial > b.serial; });
  return good;
}

std::vector<CheckpointDirectory::Entry> CheckpointDirectory::by_age() const {
  std::vector<Entry> entries = by_step();
  std::erase_if(entries, [](Entry& entry) { return read_header_of(entry); });
  const std::vector<Entry> good = with_good_headers();
  entries.insert(entries.end(), good.begin(), good.end());
  return entries;
}

std::uint32_t CheckpointDirectory::next_serial() const {
  std::uint32_t highest = 0;
  for (const Entry& entry : by_step()) {
    try {
      highest = std::max(highest, read_checkpoint_header(entry.path).serial);
    } catch (const CheckpointError&) {  // it has no age
    }
  }
  return std::min(highest, max_serial - 1) + 1;
}

std::vector<CheckpointDirectory::Entry> CheckpointDirectory::by_metric() const {
  std::vector<Entry> entries = with_good_headers();
  std::erase_if(entries,
                [](const Entry& entry) { return !entry.metric || std::isnan(*entry.metric); });
  const bool less_is_better = options_.best == Goal::minimum;
  std::sort(entries.begin(), entries.end(), [&](const Entry& a, const Entry& b) {
    // The serial decides first, because lower steps are newer after a return to an older
    // checkpoint.
    if (*a.metric == *b.metric) return std::tie(a.serial, a.step) < std::tie(b.serial, b.step);
    return less_is_better ? *a.metric < *b.metric : *a.metric > *b.metric;
  });
  return entries;
}

void CheckpointDirectory::prune(const fs::path& saved) const {
  std::set<fs::path> kept{saved};
  if (options_.keep_best) {
    const std::vector<Entry> best = by_metric();
    if (!best.empty()) kept.insert(best.front().path);
  }
  const std::vector<Entry> entries = with_good_headers();
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const bool is_recent = i < static_cast<std::size_t>(options_.keep_last);
    if (!is_recent && !kept.contains(entries[i].path)) remove_checkpoint(entries[i].path);
  }
}

// The last save is over: folders under an unfinished name are remains of processes that were
// killed.
void CheckpointDirectory::remove_unfinished() const {
  for (const fs::path& path : files_in(options_.directory))
    if (step_of(finished_name(path))) remove_or_warn(path);
}

}  // namespace kolo::internal
