// SPDX-License-Identifier: Apache-2.0
// A process of a job that kolorun starts, without training: it meets the other ranks, exchanges a
// few bytes, and counts commits. The tests of kolorun use it.
//
//   rank_program COMMITS [FAULT GENERATION RANK]
//
// In that generation, after a few commits, that rank does: kill, exit, throw or stop; report: it
// stops, and the next rank says that it does nothing. Prints one line per generation.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <span>
#include <stdexcept>
#include <string>

#include "kolo/error.hpp"
#include "kolo/version.hpp"
#include "rendezvous/tcp_rendezvous.hpp"

namespace {

using namespace kolo::internal::rendezvous;

struct Fault {
  std::string kind;
  GenerationNumber generation = 0;
  int rank = -1;
};

Bytes bytes_of(std::uint64_t number) {
  const auto bytes = std::as_bytes(std::span(&number, 1));
  return {bytes.begin(), bytes.end()};
}

std::uint64_t number_in(const Bytes& bytes) {
  std::uint64_t number = 0;
  std::memcpy(&number, bytes.data(), std::min(sizeof number, bytes.size()));
  return number;
}

void suffer(const Fault& fault, TcpRendezvous& rendezvous) {
  if (rendezvous.roster().generation != fault.generation) return;
  if (fault.kind == "report" && rendezvous.rank() == (fault.rank + 1) % rendezvous.size())
    rendezvous.report_failure({fault.rank}, "it does nothing", true);
  if (rendezvous.rank() != fault.rank) return;
  if (fault.kind == "report") ::raise(SIGSTOP);
  if (fault.kind == "kill") ::raise(SIGKILL);
  if (fault.kind == "stop") ::raise(SIGSTOP);
  if (fault.kind == "exit") ::_exit(3);
  if (fault.kind == "throw") throw std::runtime_error("the data set is empty");
}

/// Commits are agreed by a call of all. False if all have agreed to leave the session.
bool train(TcpRendezvous& rendezvous, std::uint64_t& commit, std::uint64_t last,
           const Fault& fault) {
  commit = number_in(rendezvous.gather_all(bytes_of(commit)).front());
  while (commit < last) {
    if (commit == std::min<std::uint64_t>(last / 2, 3)) suffer(fault, rendezvous);
    const bool change = rendezvous.rank() == 0 && rendezvous.announcement().has_value();
    if (number_in(rendezvous.gather_all(bytes_of(change ? 1 : 0)).front()) != 0) return false;
    static_cast<void>(rendezvous.gather_all({}));
    ++commit;
  }
  return true;
}

int run(TcpRendezvous& rendezvous, std::uint64_t last, const Fault& fault) {
  std::uint64_t commit = 0;
  bool orderly = false;
  while (true) {
    const Roster& roster = rendezvous.join(commit, orderly);
    std::printf("generation %d: rank %d of %d, commit %d\n", static_cast<int>(roster.generation),
                rendezvous.rank(), rendezvous.size(),
                static_cast<int>(roster.members.front().commit));
    std::fflush(stdout);
    orderly = false;
    try {
      orderly = !train(rendezvous, commit, last, fault);
      if (orderly) continue;
      rendezvous.leave();
      std::printf("done: rank %d of %d, commit %d\n", rendezvous.rank(), rendezvous.size(),
                  static_cast<int>(commit));
      return 0;
    } catch (const kolo::PeerLeft& error) {
      std::fprintf(stderr, "PeerLeft: %s\n", error.what());
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::uint64_t last = argc > 1 ? std::stoull(argv[1]) : 10;
  Fault fault;
  if (argc > 4) fault = {argv[2], std::stoull(argv[3]), std::atoi(argv[4])};
  try {
    const auto options = read_environment(std::string(kolo::version));
    if (!options) throw std::runtime_error("kolorun has not started this process");
    TcpRendezvous rendezvous(*options);
    try {
      return run(rendezvous, last, fault);
    } catch (const std::runtime_error& error) {
      rendezvous.fail(error.what());
      throw;
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank_program: %s\n", error.what());
    return 1;
  }
}
