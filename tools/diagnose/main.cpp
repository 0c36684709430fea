// SPDX-License-Identifier: Apache-2.0
// Reports which rank the others wait for, from the flight records of all ranks, shows a job while
// it runs, or draws a recorded run:
//
//     kolo-diagnose kolo-flight-*.jsonl
//     kolo-diagnose top
//     kolo-diagnose draw t-*.json
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <kolo/version.hpp>
#include <string>
#include <vector>

#include "picture.hpp"
#include "report.hpp"
#include "top.hpp"

namespace {

constexpr int unreadable_status = 2;

/// Reads the records, sorted by rank. For files that cannot be read, that belong to another
/// session, or that repeat a rank, a message is added to `damaged`.
std::vector<diagnose::Record> read(const std::vector<std::string>& files,
                                   std::vector<std::string>& damaged) {
  std::vector<diagnose::Record> records;
  for (const std::string& file : files) {
    try {
      diagnose::Record record = diagnose::read_record(file);
      const auto same_rank = std::ranges::find(records, record.rank, &diagnose::Record::rank);
      if (!records.empty() &&
          (record.session != records.front().session || record.size != records.front().size)) {
        damaged.push_back(fmt::format("{}: is of session {}, not of {}", file, record.session,
                                      records.front().session));
      } else if (same_rank != records.end()) {
        damaged.push_back(
            fmt::format("{}: is of rank {}, like {}", file, record.rank, same_rank->file));
      } else {
        records.push_back(std::move(record));
      }
    } catch (const diagnose::ReadError& error) {
      damaged.emplace_back(error.what());
    }
  }
  std::ranges::sort(records, {}, &diagnose::Record::rank);
  return records;
}

int report(const std::vector<std::string>& files, bool json) {
  std::vector<std::string> damaged;
  const std::vector<diagnose::Record> records = read(files, damaged);
  if (!records.empty()) {
    const diagnose::Diagnosis diagnosis = diagnose::analyze(records);
    fmt::print("{}", json ? diagnose::to_json(diagnosis, records, damaged)
                          : diagnose::to_text(diagnosis, records, damaged));
  }
  for (const std::string& one : damaged) fmt::print(stderr, "kolo-diagnose: {}\n", one);
  return damaged.empty() ? EXIT_SUCCESS : unreadable_status;
}

const CLI::App* add_draw(CLI::App& app, diagnose::DrawOptions& options) {
  CLI::App* const draw = app.add_subcommand(
      "draw", "Draw what each rank did in some steps of a run, as SVG, and which rank was late");
  draw->add_option("FILE", options.files,
                   "Timelines or flight records of one run, one of each rank")
      ->required();
  draw->add_option("-o,--output", options.output, "Path of the picture")->capture_default_str();
  draw->add_option("--steps", options.steps,
                   "Steps of the files to draw, such as 20:29, counted from 1 (default: the last "
                   "ten)");
  return draw;
}

int run(int argc, char** argv) {
  std::vector<std::string> files;
  diagnose::TopOptions running;
  bool json = false;
  CLI::App app(
      "Reports which rank the others wait for, from the flight records of all ranks.\n\n"
      "  kolo-diagnose kolo-flight-*.jsonl\n"
      "  kolo-diagnose top                     # a job while it runs\n"
      "  kolo-diagnose draw t-*.json           # a picture, from timelines",
      "kolo-diagnose");
  app.footer("Exit status: 0; 2 if a file could not be read or the command line cannot be used.");
  app.add_option("FILE", files, "Flight records of one session, one of each rank");
  app.add_flag("--json", json, "Print JSON");
  app.set_version_flag("--version", "kolo-diagnose " + std::string(kolo::version));
  CLI::App* const top = app.add_subcommand(
      "top", "Show the ranks of a running job, every second: their speed, and who waits for whom");
  top->add_option("JOB", running.job,
                  "Process ID of kolorun, or the file that KOLO_STATUS_FILE named to the job "
                  "(default: KOLO_STATUS_FILE, or this user's only kolorun)");
  top->add_flag("--once", running.once, "Print the status once");
  top->add_flag("--json", running.json, "Print the status as JSON");
  diagnose::DrawOptions drawing;
  const CLI::App* const draw = add_draw(app, drawing);
  try {
    app.parse(argc, argv);
    if (!*top && !*draw && files.empty()) throw CLI::RequiredError("FILE");
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? EXIT_SUCCESS : unreadable_status;
  }
  if (*draw) return diagnose::draw_files(drawing);
  return *top ? diagnose::top(running) : report(files, json);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "kolo-diagnose: {}\n", error.what());
    return unreadable_status;
  }
}
