// SPDX-License-Identifier: Apache-2.0
// The command `kolo-diagnose draw`.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <system_error>

#include "picture.hpp"
#include "record.hpp"

namespace diagnose {
namespace {

constexpr int status_of_damage = 2;

/// Parses "3:7" or "3". Throws std::runtime_error.
StepRange parse_steps(const std::string& text) {
  StepRange range;
  if (text.empty()) return range;
  const char* const end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, range.first);
  range.last = range.first;
  auto last = first;
  if (first.ec == std::errc() && first.ptr != end && *first.ptr == ':')
    last = std::from_chars(first.ptr + 1, end, range.last);
  if (last.ec != std::errc() || last.ptr != end || range.first == 0 || range.last < range.first)
    throw std::runtime_error(fmt::format("--steps: '{}' is not FIRST:LAST, such as 20:29", text));
  return range;
}

/// A picture in the place of a timeline could not be undone. Another name for the same file counts.
void refuse_to_overwrite_input(const DrawOptions& options) {
  const auto is_output = [&](const std::string& file) {
    std::error_code error;
    return file == options.output || std::filesystem::equivalent(file, options.output, error);
  };
  if (const auto found = std::ranges::find_if(options.files, is_output);
      found != options.files.end())
    throw std::runtime_error(
        fmt::format("{}: is a file to read, too; give the picture another path with -o", *found));
}

}  // namespace

int draw_files(const DrawOptions& options) {
  refuse_to_overwrite_input(options);
  const StepRange range = parse_steps(options.steps);
  std::vector<RankRun> runs;
  std::vector<std::string> damaged;
  for (const std::string& file : options.files) {
    try {
      RankRun run = read_run(file);
      const auto same_rank = std::ranges::find(runs, run.rank, &RankRun::rank);
      if (same_rank != runs.end())
        damaged.push_back(
            fmt::format("{}: is of rank {}, like {}", file, run.rank, same_rank->file));
      else
        runs.push_back(std::move(run));
    } catch (const ReadError& error) {
      damaged.emplace_back(error.what());
    }
  }
  for (const std::string& one : damaged) fmt::print(stderr, "kolo-diagnose: {}\n", one);
  if (runs.empty()) return status_of_damage;
  const Activity activity = find_activity(std::move(runs), range);
  std::ofstream file(options.output, std::ios::binary);
  if (!(file << draw(activity)).flush())
    throw std::runtime_error(fmt::format("{}: cannot be written", options.output));
  fmt::print("{}: {}\n", options.output, describe(activity));
  return damaged.empty() ? EXIT_SUCCESS : status_of_damage;
}

}  // namespace diagnose
