// SPDX-License-Identifier: Apache-2.0
#include "training/checkpoint/checkpoint_directory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>
#include <string_view>
#include <system_error>
#include <tuple>

#include "base/log.hpp"
#include "training/checkpoint/checkpoint_file.hpp"
#include "training/checkpoint/disk_file.hpp"

namespace kolo::internal {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view suffix = ".safetensors";

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
  fs::remove(path, error);
  if (error) warn(fmt::format("cannot remove '{}': {}", path.string(), error.message()));
}

}  // namespace

// Zeros pad the step so that listings sort by step; reading accepts any number of digits.
fs::path CheckpointDirectory::path_of(std::int64_t step) const {
  return options_.directory / fmt::format("{}-{:010}{}", options_.prefix, step, suffix);
}

void CheckpointDirectory::make() const {
  std::error_code error;
  fs::create_directories(options_.directory, error);
  if (error) fail(options_.directory, "make", error);
}

std::optional<std::int64_t> CheckpointDirectory::step_of(const fs::path& path) const {
  const std::string name = path.filename().string();
  std::string_view digits = name;
  const std::string start = options_.prefix + '-';
  if (!digits.starts_with(start)) return std::nullopt;
  digits.remove_prefix(start.size());
  if (!digits.ends_with(suffix)) return std::nullopt;
  digits.remove_suffix(suffix.size());
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

// Fills in the metric and the serial number. Returns false if the header is damaged.
bool CheckpointDirectory::read_header_of(Entry& entry) {
  try {
    const CheckpointHeader header = read_checkpoint_header(entry.path);
    entry.metric = header.metric;
    entry.serial = header.serial;
    return true;
  } catch (const CheckpointError&) {
    return false;
  }
}

// A damaged file does not count among the checkpoints to keep. It is not removed either: loading
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
  const std::vector<Entry> entries = with_good_headers();
  return entries.empty() ? 1 : std::min(entries.front().serial, max_serial - 1) + 1;
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
    if (!is_recent && !kept.contains(entries[i].path)) remove_or_warn(entries[i].path);
  }
}

// Only rank 0 writes, and its last write is over: files under an unfinished name are remains of
// processes that were killed.
void CheckpointDirectory::remove_unfinished() const {
  for (const fs::path& path : files_in(options_.directory))
    if (step_of(finished_name(path))) remove_or_warn(path);
}

}  // namespace kolo::internal
