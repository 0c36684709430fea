// SPDX-License-Identifier: Apache-2.0
// Helpers with which starting ranks exchange records and share their errors.
#pragma once

#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "base/failure.hpp"
#include "kolo/error.hpp"
#include "kolo/version.hpp"
#include "rendezvous/rendezvous.hpp"
#include "session/startup/startup_report.hpp"

namespace kolo::internal::session {

/// Runs `work` and stores the message of an exception in `problem`, unless it already holds one.
/// Start-up must not throw on one rank alone, because the others would wait for that rank in their
/// next collective call.
template <typename Work>
void attempt(std::string& problem, Work work) {
  try {
    work();
  } catch (...) {
    if (problem.empty()) problem = message_of_current_exception();
  }
}

/// The same; also stores the ranks that the error names in `missing`.
template <typename Work>
void attempt(std::string& problem, MissingRanks& missing, Work work) {
  attempt(problem, [&] {
    try {
      work();
    } catch (const Error& error) {
      missing = MissingRanks::of(error.ranks());
      throw;
    }
  });
}

/// Exchanges one record from each rank. Collective.
template <typename Record>
std::vector<Record> gather(rendezvous::Rendezvous& world, const Record& mine) {
  std::vector<Record> all;
  for (const rendezvous::Bytes& bytes : world.gather_all(std::as_bytes(std::span(&mine, 1)))) {
    if (bytes.size() != sizeof mine)
      throw BackendError("a rank has sent a record of another size than this one's");
    std::memcpy(&all.emplace_back(), bytes.data(), sizeof mine);
  }
  return all;
}

/// Throws InvalidArgument on every rank if any rank has a problem. Collective.
inline void check_all_ranks(rendezvous::Rendezvous& world, const std::string& problem) {
  throw_if_any(collect_errors(gather(world, StartupReport::make(version, problem))));
}

}  // namespace kolo::internal::session
