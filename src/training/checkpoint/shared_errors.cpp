// SPDX-License-Identifier: Apache-2.0
#include "training/checkpoint/shared_errors.hpp"

#include <fmt/format.h>

#include <cstddef>
#include <utility>
#include <vector>

#include "kolo/collectives.hpp"
#include "kolo/session.hpp"

namespace kolo::internal {
namespace {

namespace fs = std::filesystem;

// Runs `work`, and returns its error as a text; "" if it succeeds.
std::string error_text_of(const fs::path& path, const std::function<void()>& work) {
  try {
    work();
    return {};
  } catch (const CheckpointError& error) {
    return to_text(error);
  } catch (const std::exception& error) {  // std::bad_alloc, for example
    return to_text({CheckpointFault::io, path,
                    fmt::format("checkpoint '{}': {}", path.string(), error.what())});
  }
}

}  // namespace

std::string to_text(const CheckpointError& error) {
  return std::to_string(static_cast<int>(error.fault())) + '\0' + error.path().string() + '\0' +
         error.what();
}

void throw_from(const std::string& text) {
  const std::size_t path_at = text.find('\0') + 1;
  const std::size_t message_at = text.find('\0', path_at) + 1;
  throw CheckpointError(static_cast<CheckpointFault>(std::stoi(text)),
                        text.substr(path_at, message_at - 1 - path_at), text.substr(message_at));
}

std::string message_in(const std::string& text) { return text.substr(text.rfind('\0') + 1); }

std::string on_rank_0(const fs::path& path, const std::function<std::string()>& work) {
  constexpr char failed = 'F', done = 'D';
  std::string reply;
  if (rank() == 0) {
    std::string result;
    const std::string error = error_text_of(path, [&] { result = work(); });
    reply = error.empty() ? done + result : failed + error;
  }
  broadcast(reply, 0, {.name = "kolo.checkpoint.reply"});
  const char kind = reply.front();
  reply.erase(0, 1);
  if (kind == failed) throw_from(reply);
  return reply;
}

std::string first_error(const fs::path& path, const std::function<void()>& work) {
  const std::string own = error_text_of(path, work);
  for (std::string& error : allgather(own, {.name = "kolo.checkpoint.errors"}))
    if (!error.empty()) return std::move(error);
  return {};
}

}  // namespace kolo::internal
