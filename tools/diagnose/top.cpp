// SPDX-License-Identifier: Apache-2.0
#include "top.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "status_directory.hpp"

namespace diagnose {
namespace {

using Json = nlohmann::json;

constexpr std::chrono::seconds interval{1};
// Rank 0 writes once a second, and less often in a process that gets little processor time.
constexpr std::chrono::seconds old{5};

/// The text of the file; none if there is no file.
std::optional<std::string> read(const std::string& path) {
  if (std::filesystem::is_directory(path))
    throw StatusError(fmt::format("{}: is a directory", path));
  std::ifstream file(path);
  if (!file) {
    if (errno == ENOENT) return std::nullopt;
    throw StatusError(fmt::format("{}: cannot be read: {}", path, std::strerror(errno)));
  }
  return std::string(std::istreambuf_iterator<char>(file), {});
}

bool runs(pid_t process) { return ::kill(process, 0) == 0 || errno == EPERM; }

/// Whether there is such a process: a kolorun that was killed leaves its file.
bool runs(const std::string& process) {
  pid_t id = 0;
  const char* const end = process.data() + process.size();
  return std::from_chars(process.data(), end, id).ptr == end && id > 0 && runs(id);
}

std::vector<std::string> jobs_of_this_user() {
  std::vector<std::string> jobs;
  std::error_code none;
  for (const auto& entry :
       std::filesystem::directory_iterator(kolo::internal::status_directory(), none))
    if (entry.path().extension() == ".json" && runs(entry.path().stem()))
      jobs.push_back(entry.path().stem());
  std::ranges::sort(jobs);
  return jobs;
}

std::string file_of(const std::string& process) {
  return kolo::internal::status_directory() + "/" + process + ".json";
}

/// Without what a terminal would obey.
std::string text_of(const Json& json, const char* name) {
  std::string text = json.at(name).get<std::string>();
  for (char& letter : text)
    if (static_cast<unsigned char>(letter) < 0x20 || letter == 0x7f) letter = '?';
  return text;
}

double number(const Json& json, const char* name) { return json.at(name).get<double>(); }

std::string row_of(const Json& rank) {
  std::string row = fmt::format("{:>5}  {:<12}", rank.at("rank").get<int>(), text_of(rank, "host"));
  const double step = number(rank, "step_ms");
  if (rank.at("steps").get<std::uint64_t>() == 0 || step <= 0.0) {
    row += fmt::format("  {:>8}  {:>8}  {:>12}  {:>10}  {:>8}", "-", "-", "-", "-", "-");
  } else {
    row +=
        fmt::format("  {:>8}  {:>8.2f}  {:>12.1f}  {:>10.1f}  {:>8.1f}",
                    rank.at("steps").get<std::uint64_t>(), 1e3 / step, number(rank, "computing_ms"),
                    number(rank, "waiting_ms"), number(rank, "bytes_per_second") / (1 << 20));
  }
  const std::string waits_for = text_of(rank, "waits_for");
  return row + (waits_for.empty() ? "" : "  " + waits_for) + "\n";
}

/// How much longer the slowest rank computes than the mean.
std::string imbalance_of(const Json& ranks) {
  double sum = 0.0;
  double most = 0.0;
  int known = 0;
  for (const Json& rank : ranks) {
    if (rank.at("steps").get<std::uint64_t>() == 0) continue;
    ++known;
    sum += number(rank, "computing_ms");
    most = std::max(most, number(rank, "computing_ms"));
  }
  if (sum <= 0.0) return "";
  const double mean = sum / static_cast<double>(known);
  return fmt::format(", the slowest computes {:.0f} % longer than the mean",
                     100.0 * (most / mean - 1.0));
}

/// Whether the process of rank 0 is on this host.
bool runs_here(const Json& status) {
  std::array<char, 256> host{};
  const Json& ranks = status.at("ranks");
  return ::gethostname(host.data(), host.size() - 1) != 0 || ranks.empty() ||
         ranks[0].at("host").get<std::string>() != host.data() ||
         runs(status.at("process").get<pid_t>());
}

double age_of(const Json& status, std::chrono::system_clock::time_point now) {
  return std::chrono::duration<double>(now.time_since_epoch()).count() - number(status, "time");
}
bool is_old(const Json& status, std::chrono::system_clock::time_point now) {
  return age_of(status, now) > std::chrono::duration<double>(old).count();
}

std::string table_of(const Json& status, std::chrono::system_clock::time_point now) {
  if (status.at("kolo_status").get<int>() != 1)
    throw StatusError("a status of another version of Kolo");
  const Json& ranks = status.at("ranks");
  std::string table = fmt::format("session {}, {} of {} ranks{}\n", text_of(status, "session"),
                                  ranks.size(), status.at("size").get<int>(), imbalance_of(ranks));
  table += fmt::format("{:>5}  {:<12}  {:>8}  {:>8}  {:>12}  {:>10}  {:>8}  {}\n", "rank", "host",
                       "step", "steps/s", "computing ms", "waiting ms", "MiB/s", "waits for");
  for (const Json& rank : ranks) table += row_of(rank);
  const double age = age_of(status, now);
  if (is_old(status, now))
    table += fmt::format("rank 0 has written nothing for {:.0f} s: its process {}\n", age,
                         runs_here(status) ? "may be stopped" : "has ended");
  return table + text_of(status, "verdict") + "\n";
}

/// Whether the job was killed, so that nobody has removed its status.
bool is_left_behind(const std::string& text) {
  const Json status = Json::parse(text);
  return is_old(status, std::chrono::system_clock::now()) && !runs_here(status);
}

}  // namespace

std::string find_status_file(const std::string& job) {
  if (!job.empty())
    return job.find_first_not_of("0123456789") == std::string::npos ? file_of(job) : job;
  if (const char* path = std::getenv("KOLO_STATUS_FILE"); path != nullptr && *path != '\0')
    return path;
  const std::vector<std::string> jobs = jobs_of_this_user();
  if (jobs.size() == 1) return file_of(jobs.front());
  if (jobs.empty())
    throw StatusError(
        "no kolorun of this user has a job on this host whose rank 0 is here; name the status file "
        "of the job (KOLO_STATUS_FILE)");
  throw StatusError(fmt::format("several jobs run here: name one of {}", fmt::join(jobs, ", ")));
}

std::string status_as_table(const std::string& text, std::chrono::system_clock::time_point now) {
  try {
    return table_of(Json::parse(text), now);
  } catch (const Json::exception& error) {
    throw StatusError(fmt::format("no status of a job: {}", error.what()));
  }
}

int top(const TopOptions& options) {
  const std::string path = find_status_file(options.job);
  const bool screen = ::isatty(STDOUT_FILENO) != 0 && !options.once && !options.json;
  // In an elastic job one session follows another, until the kolorun ends that is named.
  const std::string launcher = std::filesystem::path(path).stem();
  const auto may_come = [&] { return path == file_of(launcher) && runs(launcher); };
  for (bool any = false;;) {
    const std::optional<std::string> text = read(path);
    if (text) {
      any = true;
      if (screen) fmt::print("\x1b[H\x1b[2J");
      fmt::print("{}",
                 options.json ? *text : status_as_table(*text, std::chrono::system_clock::now()));
      std::fflush(stdout);
    } else if (options.once || !may_come()) {
      if (!any) throw StatusError(fmt::format("{}: no such file", path));
      fmt::print("the {} has ended\n", path == file_of(launcher) ? "job" : "session");
      return EXIT_SUCCESS;
    }
    if (options.once || std::ferror(stdout) != 0 || (text && is_left_behind(*text)))
      return EXIT_SUCCESS;
    std::this_thread::sleep_for(interval);
  }
}

}  // namespace diagnose
