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

/// Thrown by a rank that leaves its session with an exception.
struct Departure {};

/// The current activity of this rank, which the watchdog prints.
void set_stage(const std::string& stage);
/// Ends the process unless this is called again within `seconds`.
void watch(std::uint64_t seed, int rank, unsigned seconds);
/// Restarts the watchdog with `times` times the timeout.
void watch_again(unsigned times);

/// Reports an error and ends the process, because the other ranks may be anywhere in the program.
[[noreturn]] void fail(const std::string& what);

/// Sets the environment variables of the settings, which each session reads when it begins.
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

/// The program's own handler of SIGUSR1, which calls the previous handler.
class SignalHandler {
 public:
  /// Requires a session.
  SignalHandler();
  SignalHandler(const SignalHandler&) = delete;
  SignalHandler& operator=(const SignalHandler&) = delete;
  ~SignalHandler();
  /// Raises the signal. After the next collective there must be a flight record.
  void raise();
  static void require_record();
};

/// Child processes that exist during training.
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

/// Starts a child process that silently outlives this one by some seconds.
void start_orphan();

/// Threads that run collectives during training, the same ones on all ranks.
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
