// SPDX-License-Identifier: Apache-2.0
// The environment of a program: settings, sessions, forked helpers, other threads, and a watchdog.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "kolo/session.hpp"
#include "program.hpp"
#include "support/world.hpp"

namespace kolo::internal::journeys {

/// A result that the program does not allow.
class Unexpected : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Thrown by a rank that leaves its session by an exception.
struct Departure {};

/// The current activity of this rank, which the watchdog prints.
void set_stage(const std::string& stage);
/// Ends the process unless it is called again within so many seconds.
void watch(std::uint64_t seed, int rank, unsigned seconds);
/// Watches from now on, for so many times as long.
void watch_again(unsigned times);

/// Reports what is wrong and ends the process: the other ranks may be anywhere.
[[noreturn]] void fail(const std::string& what);

/// Sets the variables of the settings. Before each session: each reads them.
void set_variables(const Program& program);

/// A directory of this process for flight records.
[[nodiscard]] std::filesystem::path record_directory();

/// Open descriptors of this process.
[[nodiscard]] std::ptrdiff_t open_descriptors();

/// A session of the first `ranks` ranks of the world.
class OpenSession {
 public:
  OpenSession(const Program& program, int ranks);
  OpenSession(const OpenSession&) = delete;
  OpenSession& operator=(const OpenSession&) = delete;
  ~OpenSession();

 private:
#ifdef KOLO_TEST_MPI
  MPI_Comm part_ = MPI_COMM_NULL;
#endif
  bool by_init_ = false;
  std::optional<Session> session_{};
};

/// The program's own handler of SIGUSR1, which calls the one that was there before it.
class SignalHandler {
 public:
  /// During a session.
  SignalHandler();
  SignalHandler(const SignalHandler&) = delete;
  SignalHandler& operator=(const SignalHandler&) = delete;
  ~SignalHandler();
  /// Raises the signal. After the next collective there must be a flight record.
  void raise();
  static void require_record();
};

/// Child processes that live beside training.
class Helpers {
 public:
  Helpers() = default;
  Helpers(const Helpers&) = delete;
  Helpers& operator=(const Helpers&) = delete;
  ~Helpers();
  void start();

 private:
  std::vector<pid_t> children_{};
};

/// A child process that lives for some seconds more than this one, silently.
void start_orphan();

/// Threads that run collectives beside training, the same on all ranks.
class SideThreads {
 public:
  SideThreads(const Program& program, const std::string& epoch, int rank, int ranks);
  SideThreads(const SideThreads&) = delete;
  SideThreads& operator=(const SideThreads&) = delete;
  ~SideThreads();

  /// Throws Unexpected for a wrong result.
  void finish();

 private:
  void run(int number, const std::string& epoch, int rank, int ranks);

  std::vector<std::string> complaints_{};  // by thread
  std::vector<std::thread> threads_{};
};

}  // namespace kolo::internal::journeys
