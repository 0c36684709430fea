// SPDX-License-Identifier: Apache-2.0
#include "kolo/training/checkpointer.hpp"

#include <fmt/format.h>

#include <array>
#include <functional>
#include <utility>

#include "base/log.hpp"
#include "base/rank_set.hpp"
#include "kolo/collectives.hpp"
#include "kolo/session.hpp"
#include "training/agreement.hpp"
#include "training/bytes.hpp"
#include "training/checkpoint/checkpoint_directory.hpp"
#include "training/checkpoint/checkpoint_file.hpp"
#include "training/checkpoint/checkpoint_payload.hpp"
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

// Runs `work` on rank 0 while the others wait. Its failure is thrown on all ranks: otherwise they
// would wait in a collective that rank 0 never enters.
void on_rank_0(const fs::path& path, const std::function<void()>& work) {
  std::string failure;
  if (rank() == 0) {
    try {
      work();
    } catch (const CheckpointError& error) {
      failure = to_text(error);
    } catch (const std::exception& error) {  // std::bad_alloc, for example
      failure = to_text({CheckpointFault::io, path,
                         fmt::format("checkpoint '{}': {}", path.string(), error.what())});
    }
  }
  broadcast(failure, 0, {.name = "kolo.checkpoint.failure"});
  if (!failure.empty()) throw_from(failure);
}

void require_same_bytes(const std::string& payload, const fs::path& path) {
  const std::uint32_t mine = crc32(payload);
  std::uint32_t reference = mine;
  broadcast(reference, 0, {.name = "kolo.checkpoint.checksum"});
  const std::vector<int> differing = ranks_that(mine != reference, "kolo.checkpoint.differs");
  if (differing.empty()) return;
  throw CheckpointError(
      CheckpointFault::corrupt, path,
      fmt::format("checkpoint '{}' arrived with bytes that differ from rank 0's on ranks {}",
                  path.string(), to_string(RankSet::of(differing))));
}

// Collective: sends the contents that rank 0 read at `path` to all ranks. Broadcasts run one after
// the other under fixed names, so that ranks need nothing in advance but the order.
Checkpoint shared(CheckpointContents contents, fs::path path) {
  std::string path_text = path.string();
  broadcast(path_text, 0, {.name = "kolo.checkpoint.path"});
  path = path_text;
  // Only rank 0 has a header, so whether there is a metric must be sent too.
  std::array<double, 2> metric = {contents.header.metric ? 1.0 : 0.0,
                                  contents.header.metric.value_or(0.0)};
  broadcast(metric, 0, {.name = "kolo.checkpoint.metric"});
  broadcast(contents.header.step, 0, {.name = "kolo.checkpoint.step"});
  std::string bytes;
  if (rank() == 0) bytes = encode(std::exchange(contents.payload, {}));
  broadcast(bytes, 0, {.name = "kolo.checkpoint.payload"});
  require_same_bytes(bytes, path);

  CheckpointPayload payload = decode(bytes);
  Checkpoint checkpoint{.step = contents.header.step,
                        .ranks = static_cast<int>(payload.own.size()),
                        .parts = std::move(payload.parts),
                        .path = std::move(path)};
  if (metric[0] != 0.0) checkpoint.metric = metric[1];
  // Own parts belong to a rank of a world of that size; in another world they belong to no rank.
  if (checkpoint.ranks == size()) {
    checkpoint.own = std::move(payload.own[static_cast<std::size_t>(rank())]);
  }
  return checkpoint;
}

// A rank that has joined contributes "", which is not an encoding of no parts.
std::vector<Blobs> decode_all(const std::vector<std::string>& encoded) {
  std::vector<Blobs> all;
  for (const std::string& bytes : encoded)
    all.push_back(bytes.empty() ? Blobs{} : decode_parts(bytes));
  return all;
}

struct Found {
  fs::path path{};
  CheckpointContents contents{};
};

// The first entry whose file is complete, on this rank; an empty path if there is none.
Found first_whole(const std::vector<CheckpointDirectory::Entry>& entries) {
  for (const CheckpointDirectory::Entry& entry : entries) {
    try {
      return {.path = entry.path, .contents = read_checkpoint(entry.path)};
    } catch (const CheckpointError& error) {
      warn(fmt::format("{}: skipped", error.what()));
    }
  }
  return {};
}

// Collective: runs `find` on rank 0 and sends what it found to all ranks.
std::optional<Checkpoint> load_first(const fs::path& directory,
                                     const std::function<Found()>& find) {
  Found found;
  on_rank_0(directory, [&] { found = find(); });
  std::int32_t any = found.path.empty() ? 0 : 1;
  broadcast(any, 0, {.name = "kolo.checkpoint.any"});
  if (any == 0) return std::nullopt;
  return shared(std::move(found.contents), std::move(found.path));
}

const std::string& part_of(const Blobs& blobs, const std::string& name, const fs::path& path) {
  const auto found = blobs.find(name);
  if (found != blobs.end()) return found->second;
  throw CheckpointError(CheckpointFault::incomplete, path,
                        fmt::format("checkpoint '{}' has no part '{}'", path.string(), name));
}

}  // namespace

const std::string& Checkpoint::part(const std::string& name) const {
  return part_of(parts, name, path);
}

const std::string& Checkpoint::own_part(const std::string& name) const {
  return part_of(own, name, path);
}

Checkpointer::Checkpointer(CheckpointerOptions options) : options_(std::move(options)) {
  require(!options_.directory.empty(), "kolo::Checkpointer: the directory is empty");
  require(!options_.prefix.empty() && options_.prefix.find('/') == std::string::npos,
          "kolo::Checkpointer: prefix must be the start of a file's name, but is '{}'",
          options_.prefix);
  require(options_.keep_last >= 1, "kolo::Checkpointer: keep_last must be at least 1, but is {}",
          options_.keep_last);
}

fs::path Checkpointer::save(std::int64_t step, const Blobs& parts, const CheckpointExtras& extras) {
  require(step >= 0, "kolo::Checkpointer: step must not be negative, but is {}", step);
  const CheckpointDirectory directory(options_);
  const fs::path path = directory.path_of(step);
  const std::vector<std::string> encoded_own =
      allgather(encode(extras.own), {.name = "kolo.checkpoint.own"});
  on_rank_0(path, [&] {
    const std::vector<Blobs> own = decode_all(encoded_own);
    // Old checkpoints go only after the new one is complete: at every moment there is a valid one.
    directory.make();
    directory.remove_unfinished();  // first: they may have the room that the new one needs
    write_checkpoint(path,
                     {.step = step, .metric = extras.metric, .serial = directory.next_serial()},
                     parts, own);
    directory.prune(path);
  });
  return path;
}

std::optional<Checkpoint> Checkpointer::load_latest() const {
  return load_first(options_.directory,
                    [&] { return first_whole(CheckpointDirectory(options_).by_age()); });
}

std::optional<Checkpoint> Checkpointer::load_best() const {
  return load_first(options_.directory,
                    [&] { return first_whole(CheckpointDirectory(options_).by_metric()); });
}

std::optional<fs::path> Checkpointer::latest() const {
  std::string path;
  on_rank_0(options_.directory,
            [&] { path = first_whole(CheckpointDirectory(options_).by_age()).path.string(); });
  broadcast(path, 0, {.name = "kolo.checkpoint.path"});
  if (path.empty()) return std::nullopt;
  return path;
}

Checkpoint Checkpointer::load(const fs::path& path) {
  CheckpointContents contents;
  on_rank_0(path, [&] { contents = read_checkpoint(path); });
  return shared(std::move(contents), path);
}

}  // namespace kolo
