// SPDX-License-Identifier: Apache-2.0
// Faults that a test program commits against itself.
#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iostream>
#include <kolo/kolo.hpp>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace kolo::internal {

/// KIND:PHASE:RANK:STEP or KIND:PHASE:RANK:STEP:DELAY, in microseconds.
///
/// Kinds: kill, exit (status 3), leave (status 0), throw, stop; pause, where another process
/// continues this one; host and hoststop, which kill and stop the kolorun that has started the
/// process; cut, where the process waits until another process has created the file fault.N.done.
///
/// A phase is a call of `at` in the program. With a delay, the program continues, and a thread
/// commits the fault. Two phases have only threads: "restart" begins when the session of the
/// process has ended, and "second" when any process has committed fault 0.
struct Fault {
  std::string kind{};
  std::string phase{};
  int rank = 0;
  std::size_t step = 0;
  long delay = -1;  // negative: none

  explicit Fault(const std::string& text) {
    std::vector<std::string> fields;
    std::istringstream words(text);
    for (std::string word; std::getline(words, word, ':');) fields.push_back(word);
    kind = fields.at(0);
    phase = fields.at(1);
    rank = std::stoi(fields.at(2));
    step = std::stoull(fields.at(3));
    if (fields.size() > 4) delay = std::stol(fields[4]);
  }
};

/// Commits each fault once in the job: in the process that creates the fault's file.
/// Must not be destroyed before the process ends, because threads may use it.
class Faults {
 public:
  Faults(std::string folder, const std::vector<std::string>& texts) : folder_(std::move(folder)) {
    for (const std::string& text : texts) faults_.emplace_back(text);
    for (std::size_t i = 0; i < faults_.size(); ++i)
      if (faults_[i].phase == "restart" || faults_[i].phase == "second")
        std::thread([this, i] { watch(i); }).detach();
  }

  /// Rank 0 calls these when a session begins, and after its first step.
  void begin_session() {
    recovering_.clear();
    for (std::size_t i = 0; i < faults_.size(); ++i)
      if (exists(file_of(i))) recovering_.push_back(i);
  }
  void end_first_step() {
    for (const std::size_t i : recovering_) {
      double then = 0.0;
      if (!(std::ifstream(file_of(i)) >> then) || !make(file_of(i) + ".recovered", "")) continue;
      std::cout << fmt::format("next step {:.1f} ms after fault {}\n", milliseconds() - then, i)
                << std::flush;
    }
    recovering_.clear();
  }

  /// Call this after the training: no session and no fault follows.
  void end() {
    const std::scoped_lock lock(mutex_);
    ended_ = true;
  }

  /// `step`: the number of steps made so far.
  void at(const std::string& phase, int rank, std::size_t step) {
    rank_ = rank;
    for (std::size_t i = 0; i < faults_.size(); ++i) {
      Fault& fault = faults_[i];
      if (fault.phase != phase || fault.rank != rank || step < fault.step) continue;
      if (fault.delay >= 0) {
        commit_later(i, std::exchange(fault.delay, -1));
        fault.rank = -1;  // this process does not reach the phase again
      } else if (is_first(i)) {
        suffer(i);
      }
    }
  }

 private:
  /// Milliseconds on the host's clock.
  [[nodiscard]] static double milliseconds() {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration<double, std::milli>(now).count();
  }

  [[nodiscard]] std::string file_of(std::size_t i) const {
    return fmt::format("{}/fault.{}", folder_, i);
  }
  [[nodiscard]] static bool exists(const std::string& path) {
    return ::access(path.c_str(), F_OK) == 0;
  }
  /// Creates a file; returns false if it exists.
  [[nodiscard]] static bool make(const std::string& path, const std::string& text) {
    const int file = ::open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
    if (file < 0) return false;
    const bool written = ::write(file, text.data(), text.size()) == std::ssize(text);
    ::close(file);
    return written;
  }
  [[nodiscard]] bool is_first(std::size_t i) const {
    return make(file_of(i), std::to_string(milliseconds()));
  }

  void commit_later(std::size_t i, long delay) {
    std::thread([this, i, delay] {
      std::this_thread::sleep_for(std::chrono::microseconds(delay));
      const std::scoped_lock lock(mutex_);
      if (!ended_ && is_first(i)) suffer(i);
    }).detach();
  }

  void watch(std::size_t i) {
    const Fault fault = faults_[i];
    const auto wait_until = [](const std::function<bool()>& condition) {
      while (!condition()) std::this_thread::sleep_for(std::chrono::microseconds(200));
    };
    if (fault.phase == "second") {
      wait_until([&] { return exists(file_of(0)) && rank_ == fault.rank; });
    } else {
      wait_until([] { return initialized(); });
      wait_until([&] { return rank_ == fault.rank; });
      wait_until([] { return !initialized(); });
    }
    commit_later(i, std::max(0L, fault.delay));
  }

  void suffer(std::size_t i) const {
    const Fault& fault = faults_[i];
    std::cerr << fmt::format("fault {}: {} in {} on rank {}\n", i, fault.kind, fault.phase,
                             rank_.load());
    if (fault.kind == "kill") ::raise(SIGKILL);
    if (fault.kind == "exit") ::_exit(3);
    if (fault.kind == "leave") std::exit(0);
    if (fault.kind == "throw") throw std::runtime_error("the data set is empty");
    if (fault.kind == "stop" || fault.kind == "pause") ::raise(SIGSTOP);
    if (fault.kind == "host") ::kill(::getppid(), SIGKILL);
    if (fault.kind == "hoststop") ::kill(::getppid(), SIGSTOP);
    if (fault.kind == "cut")
      while (!exists(file_of(i) + ".done"))
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  std::string folder_;
  std::vector<Fault> faults_{};
  std::vector<std::size_t> recovering_{};
  std::atomic<int> rank_{-1};
  std::mutex mutex_{};
  bool ended_ = false;
};

/// A part of the state whose ranks fail where it is saved and loaded.
class FaultyHandler : public elastic::StateHandler {
 public:
  /// `steps` returns the number of steps so far.
  FaultyHandler(Faults& faults, std::function<std::size_t()> steps)
      : faults_(faults), steps_(std::move(steps)) {}

  void save(StateDict& /*state*/) override { faults_.at("save", rank(), steps_()); }
  void load(const StateDict& /*state*/) override { faults_.at("load", rank(), steps_()); }
  void rejoin() override {
    if (rank() == 0) faults_.begin_session();
    faults_.at("rejoin", rank(), steps_());
  }

 private:
  Faults& faults_;
  std::function<std::size_t()> steps_;
};

}  // namespace kolo::internal
