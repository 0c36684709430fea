// SPDX-License-Identifier: Apache-2.0
#include "error_files.hpp"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <system_error>
#include <vector>

#include "rendezvous/server/process_table.hpp"

namespace kolorun {
namespace {

namespace fs = std::filesystem;
namespace rendezvous = kolo::internal::rendezvous;
using nlohmann::json;

double now() {
  using std::chrono::system_clock;
  return std::chrono::duration<double>(system_clock::now().time_since_epoch()).count();
}

json lines_of(const std::string& text) {
  json lines = json::array();
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

void write(const fs::path& path, const json& object) {
  const fs::path unfinished = path.string() + ".part";
  std::error_code ignored;
  // Lines of a program may be any bytes.
  constexpr auto replace = json::error_handler_t::replace;
  std::ofstream file(unfinished);
  file << object.dump(1, ' ', false, replace) << '\n';
  file.close();
  if (file)
    fs::rename(unfinished, path, ignored);
  else
    fs::remove(unfinished, ignored);
}

}  // namespace

void write_error_file(const std::string& path, const std::string& host, int pid,
                      const rendezvous::Exited& exited) {
  const bool is_signal = exited.status > rendezvous::signal_base;
  write(path, {{"host", host},
               {"pid", pid},
               {"status", exited.status},
               {"signal", is_signal ? exited.status - rendezvous::signal_base : 0},
               {"detail", exited.detail},
               {"last_lines", lines_of(exited.last_lines)},
               {"time", now()}});
}

void write_job_error_file(const std::string& folder, const rendezvous::JobEnd& end, int restarts) {
  if (folder.empty()) return;
  const fs::path path = fs::path(folder) / "error.json";
  std::error_code ignored;
  if (end.status == 0) {
    fs::remove(path, ignored);
    return;
  }
  fs::create_directories(folder, ignored);
  write(path, {{"status", end.status},
               {"reason", end.reason},
               {"last_lines", lines_of(end.last_lines)},
               {"waits", end.waits},
               {"restarts", restarts},
               {"starts_again", end.restarts},
               {"time", now()}});
}

std::string flight_records_in(const std::string& folder, double seconds) {
  const auto begin =
      fs::file_time_type::clock::now() - std::chrono::duration_cast<fs::file_time_type::duration>(
                                             std::chrono::duration<double>(seconds));
  std::string pattern;
  fs::file_time_type newest = begin;
  std::error_code error;
  for (fs::directory_iterator i(folder, error), end; !error && i != end; i.increment(error)) {
    const std::string name = i->path().filename().string();
    if (!name.starts_with("kolo-flight-") || !name.ends_with(".jsonl")) continue;
    std::error_code gone;
    const fs::file_time_type written = i->last_write_time(gone);
    if (gone || written < newest) continue;
    newest = written;
    // The records of one session differ in the rank.
    pattern = (fs::path(folder) / (name.substr(0, name.rfind('-')) + "-*.jsonl")).string();
  }
  return pattern;
}

}  // namespace kolorun
