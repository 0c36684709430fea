// SPDX-License-Identifier: Apache-2.0
#include "redirection.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "base/process_limits.hpp"
#include "kolorun/child.hpp"

namespace kolorun {
namespace {

struct Target {
  node::FileDescriptor file{};
  std::string path{};
};

Target open_file(const std::string& path) {
  node::FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!file.valid())
    throw std::runtime_error(
        fmt::format("'{}' cannot be written: {}", path, kolo::internal::error_text(errno)));
  return {std::move(file), path};
}

/// The path of the files of a process, without the end of their names.
std::string path_of_files(const Options& options, const rendezvous::Launch& launch) {
  const std::string name = launch.rank >= 0 ? fmt::format("rank.{}", launch.rank)
                                            : fmt::format("process.{}", launch.process);
  std::error_code none;  // ignored, because opening the file reports the error
  // Files of earlier attempts remain: they may have the reason of the restart.
  const std::string folder =
      launch.restarts == 0 ? options.output_dir
                           : fmt::format("{}/restart.{}", options.output_dir, launch.restarts);
  std::filesystem::create_directories(folder, none);
  return folder + '/' + name;
}

std::string tag_of(const rendezvous::Launch& launch) {
  return fmt::format("[{}] ", launch.rank >= 0 ? std::to_string(launch.rank)
                                               : "process " + std::to_string(launch.process));
}

/// A pipe to kolorun, which copies what comes out of it. Returns its other end.
node::FileDescriptor copy(TaggedStream::Copies copies, std::list<TaggedStream>& streams) {
  Pipe pipe = make_pipe();
  streams.emplace_back(std::move(pipe.from), std::move(copies));
  return std::move(pipe.to);
}

std::optional<OutputFile> as_copy(Target target) {
  if (!target.file.valid()) return std::nullopt;
  return OutputFile(std::move(target.file), target.path);
}

}  // namespace

Redirection redirect(const Options& options, const rendezvous::Launch& launch,
                     std::list<TaggedStream>& streams) {
  Redirection to;
  Target out;
  Target error;
  const bool has_files = !options.output_dir.empty();
  if (has_files) {
    const std::string path = path_of_files(options, launch);
    out = open_file(path + ".out");
    error = open_file(path + ".err");
    to.error_file = error.path;
  }
  const bool is_shown =
      (!has_files || options.tee) && (!options.filter || options.filter->shows(launch.rank));
  if (has_files && !is_shown) {  // not through kolorun, so that it cannot hold the process up
    to.out = std::move(out.file);
    to.error = std::move(error.file);
    return to;
  }
  const bool by_line = options.tag_output || options.tee;
  // Otherwise the process writes to the output of kolorun itself, which may be a terminal, and
  // outlives kolorun. With other hosts, the last lines are shown again if the process fails.
  const bool copies_out = by_line && is_shown;
  const bool copies_error = by_line || !is_shown || !options.joining.host.empty();
  TaggedStream::Copies copies{.to = STDOUT_FILENO,
                              .is_shown = is_shown,
                              .tag = options.tag_output ? tag_of(launch) : "",
                              .unit = by_line ? TaggedStream::Unit::line : TaggedStream::Unit::any,
                              .file = as_copy(std::move(out))};
  if (copies_out)
    to.out = copy(copies, streams);
  else if (!is_shown)
    to.out = node::FileDescriptor(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  if (!copies_error) return to;
  copies.to = STDERR_FILENO;
  copies.file = as_copy(std::move(error));
  copies.last_lines = to.last_lines = std::make_shared<LastLines>();
  to.error = copy(std::move(copies), streams);
  return to;
}

}  // namespace kolorun
