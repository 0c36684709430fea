// SPDX-License-Identifier: Apache-2.0
#include "kolo/training/checkpoint.hpp"

#include <fmt/format.h>

#include <functional>
#include <utility>

#include "base/log.hpp"
#include "kolo/collectives.hpp"
#include "kolo/cuda.hpp"
#include "kolo/session.hpp"
#include "training/agreement.hpp"
#include "training/checkpoint/checkpoint_directory.hpp"
#include "training/checkpoint/checkpoint_file.hpp"
#include "training/require.hpp"

namespace kolo {

using namespace internal;
namespace {

namespace fs = std::filesystem;

// Rank 0's error as it is sent: fault, path and message, separated by zero bytes.
std::string to_text(const CheckpointError& error) {
  return std::to_string(static_cast<int>(error.fault())) + '\0' + error.path().string() + '\0' +
         error.what();
}

[[noreturn]] void throw_from(const std::string& text) {
  const std::size_t path_at = text.find('\0') + 1;
  const std::size_t message_at = text.find('\0', path_at) + 1;
  throw CheckpointError(static_cast<CheckpointFault>(std::stoi(text)),
                        text.substr(path_at, message_at - 1 - path_at), text.substr(message_at));
}

// Runs `work` on rank 0 while the others wait, and returns its result on all ranks. Its failure is
// thrown on all ranks: otherwise they would wait in a collective that rank 0 never enters. Unlike
// `on_one_rank`, it sends the result and the fault and path of a CheckpointError.
std::string on_rank_0(const fs::path& path, const std::function<std::string()>& work) {
  constexpr char failed = 'F', done = 'D';
  std::string reply;
  if (rank() == 0) {
    try {
      reply = done + work();
    } catch (const CheckpointError& error) {
      reply = failed + to_text(error);
    } catch (const std::exception& error) {  // std::bad_alloc, for example
      reply = failed + to_text({CheckpointFault::io, path,
                                fmt::format("checkpoint '{}': {}", path.string(), error.what())});
    }
  }
  broadcast(reply, 0, {.name = "kolo.checkpoint.reply"});
  const char kind = reply.front();
  reply.erase(0, 1);
  if (kind == failed) throw_from(reply);
  return reply;
}

// A checkpoint that rank 0 has read: the bytes of its file, which the other ranks get, and the
// contents parsed from them.
struct Found {
  fs::path path{};
  std::string bytes{};
  CheckpointContents contents{};
};

Found read(const fs::path& path) {
  Found found{.path = path, .bytes = read_checkpoint(path)};
  found.contents = parse_checkpoint(path, found.bytes);
  return found;
}

// Reads the first entry whose file is undamaged; the path is empty if there is none. Not
// collective.
Found first_undamaged(const std::vector<CheckpointDirectory::Entry>& entries) {
  for (const CheckpointDirectory::Entry& entry : entries) {
    try {
      return read(entry.path);
    } catch (const CheckpointError& error) {
      warn(fmt::format("{}: skipped", error.what()));
    }
  }
  return {};
}

// Collective: the encoded per-rank parts of all ranks. Throws InvalidArgument on all ranks if the
// parts of a rank cannot be encoded. A rank that has joined contributes "".
std::vector<std::string> gather_encoded(const NamedStates& parts) {
  std::string encoded;
  const FailedRanks failed =
      failed_ranks("kolo.checkpoint.encode", [&] { encoded = encode_parts(parts); });
  if (!failed.ranks.empty())
    throw InvalidArgument(
        "kolo::Checkpointer: the per-rank parts cannot be saved: " + failed.message, {},
        failed.ranks);
  return allgather(encoded, {.name = "kolo.checkpoint.per_rank"});
}

// Collective: parses the bytes that rank 0 has sent, and throws on all ranks if a rank cannot.
void parse_together(Found& found) {
  const FailedRanks failed = failed_ranks("kolo.checkpoint.parse", [&] {
    if (rank() != 0) found.contents = parse_checkpoint(found.path, found.bytes);
  });
  if (!failed.ranks.empty())
    throw CheckpointError(CheckpointFault::corrupt, found.path,
                          "as received from rank 0, " + failed.message);
}

// Collective: runs `find` on rank 0 and sends the file that it found to all ranks.
std::optional<Checkpoint> load_found(const fs::path& where, const std::function<Found()>& find) {
  Found found;
  found.path = on_rank_0(where, [&] {
    found = find();
    return found.path.string();
  });
  if (found.path.empty()) return std::nullopt;
  broadcast(found.bytes, 0, {.name = "kolo.checkpoint.file"});
  parse_together(found);

  CheckpointContents& contents = found.contents;
  Checkpoint checkpoint{.step = contents.header.step,
                        .metric = contents.header.metric,
                        .ranks = static_cast<int>(contents.per_rank.size()),
                        .parts = std::move(contents.parts),
                        .path = std::move(found.path)};
  // Per-rank parts belong to the ranks of a world of the saved size. In a world of another size
  // they have no owner.
  if (checkpoint.ranks == size())
    checkpoint.per_rank = std::move(contents.per_rank[static_cast<std::size_t>(rank())]);
  return checkpoint;
}

const StateDict& part_of(const NamedStates& parts, const std::string& name, const fs::path& path) {
  const auto found = parts.find(name);
  if (found != parts.end()) return found->second;
  throw CheckpointError(CheckpointFault::incomplete, path,
                        fmt::format("checkpoint '{}' has no part '{}'", path.string(), name));
}

}  // namespace

const StateDict& Checkpoint::part(const std::string& name) const {
  return part_of(parts, name, path);
}

const StateDict& Checkpoint::per_rank_part(const std::string& name) const {
  return part_of(per_rank, name, path);
}

Checkpointer::Checkpointer(CheckpointerOptions options) : options_(std::move(options)) {
  require(!options_.directory.empty(), "kolo::Checkpointer: the directory is empty");
  require(!options_.prefix.empty() && options_.prefix.find('/') == std::string::npos,
          "kolo::Checkpointer: prefix must be the start of a file's name, but is '{}'",
          options_.prefix);
  require(options_.keep_last >= 1, "kolo::Checkpointer: keep_last must be at least 1, but is {}",
          options_.keep_last);
  std::error_code unknown;  // the working directory was removed: the path stays as it is
  if (fs::path full = fs::absolute(options_.directory, unknown); !unknown)
    options_.directory = std::move(full);
}

fs::path Checkpointer::save(std::int64_t step, const NamedStates& parts,
                            const CheckpointExtras& extras) {
  require(step >= 0, "kolo::Checkpointer: step must not be negative, but is {}", step);
  synchronize();  // what has failed on the GPU must not be saved
  const CheckpointDirectory directory(options_);
  const fs::path path = directory.path_of(step);
  const std::vector<std::string> per_rank = gather_encoded(extras.per_rank);
  on_rank_0(path, [&] {
    // Old checkpoints go only after the new one is complete: at every moment there is a valid one.
    directory.make();
    directory.remove_unfinished();  // before writing: the new file may need the space
    write_checkpoint(path,
                     {.step = step, .metric = extras.metric, .serial = directory.next_serial()},
                     parts, per_rank);
    directory.prune(path);
    return std::string();
  });
  return path;
}

std::optional<Checkpoint> Checkpointer::load_latest() const {
  return load_found(options_.directory,
                    [&] { return first_undamaged(CheckpointDirectory(options_).by_age()); });
}

std::optional<Checkpoint> Checkpointer::load_best() const {
  return load_found(options_.directory,
                    [&] { return first_undamaged(CheckpointDirectory(options_).by_metric()); });
}

std::optional<fs::path> Checkpointer::latest() const {
  const fs::path path = on_rank_0(options_.directory, [&] {
    return first_undamaged(CheckpointDirectory(options_).by_age()).path.string();
  });
  if (path.empty()) return std::nullopt;
  return path;
}

Checkpoint Checkpointer::load(const fs::path& path) {
  return load_found(path, [&] { return read(path); }).value();
}

}  // namespace kolo
