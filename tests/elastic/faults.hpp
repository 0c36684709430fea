// SPDX-License-Identifier: Apache-2.0
// Faults that a test program commits against itself.
#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <kolo/kolo.hpp>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace kolo::internal {

/// KIND:PHASE:RANK:STEP. Kinds: kill, exit (status 3), leave (status 0), throw, stop. A phase is
/// where the program calls `at`; in "restart", a thread kills the process STEP microseconds after
/// its session has ended, while it starts the next one.
struct Fault {
  std::string kind{};
  std::string phase{};
  int rank = 0;
  std::size_t step = 0;
};

/// Each fault happens once in the job: in the process that makes the fault's file.
/// Never destroy it before the process ends: threads may use it.
class Faults {
 public:
  Faults(std::string folder, const std::vector<std::string>& texts) : folder_(std::move(folder)) {
    for (const std::string& text : texts) {
      std::istringstream fields(text);
      std::string rank;
      std::string step;
      Fault& fault = faults_.emplace_back();
      std::getline(fields, fault.kind, ':');
      std::getline(fields, fault.phase, ':');
      std::getline(fields, rank, ':');
      std::getline(fields, step, ':');
      fault.rank = std::stoi(rank);
      fault.step = std::stoull(step);
    }
    for (std::size_t i = 0; i < faults_.size(); ++i)
      if (faults_[i].phase == "restart") std::thread([this, i] { watch_restart(i); }).detach();
  }

  /// On the clock of the host.
  [[nodiscard]] static double milliseconds() {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration<double, std::milli>(now).count();
  }

  /// How many there were, and the time since the last one in milliseconds; 0: there was none.
  [[nodiscard]] std::pair<std::size_t, double> since_last() const {
    std::pair<std::size_t, double> last{0, 0.0};
    for (std::size_t i = 0; i < faults_.size(); ++i) {
      std::ifstream file(fmt::format("{}/fault.{}", folder_, i));
      double then = 0.0;
      if (!(file >> then)) continue;
      ++last.first;
      const double since = milliseconds() - then;
      if (last.second == 0.0 || since < last.second) last.second = since;
    }
    return last;
  }

  /// The training is done: no session follows.
  void end() { ended_ = true; }

  /// `step`: how many have been made.
  void at(const std::string& phase, int rank, std::size_t step) {
    rank_ = rank;
    for (std::size_t i = 0; i < faults_.size(); ++i)
      if (faults_[i].phase == phase && faults_[i].rank == rank && step >= faults_[i].step &&
          is_first(i))
        suffer(faults_[i]);
  }

 private:
  [[nodiscard]] bool is_first(std::size_t i) const {
    const std::string path = fmt::format("{}/fault.{}", folder_, i);
    const int file = ::open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
    if (file < 0) return false;
    const std::string now = std::to_string(milliseconds());
    const bool written = ::write(file, now.data(), now.size()) == static_cast<ssize_t>(now.size());
    ::close(file);
    return written;
  }

  void watch_restart(std::size_t i) {
    const auto wait_until = [](bool initialized) {
      while (kolo::initialized() != initialized)
        std::this_thread::sleep_for(std::chrono::microseconds(50));
    };
    wait_until(true);
    while (rank_ != faults_[i].rank) std::this_thread::sleep_for(std::chrono::microseconds(50));
    wait_until(false);
    std::this_thread::sleep_for(std::chrono::microseconds(faults_[i].step));
    if (!ended_ && is_first(i)) suffer(faults_[i]);
  }

  static void suffer(const Fault& fault) {
    std::cerr << fmt::format("fault: {} in {} on rank {}\n", fault.kind, fault.phase, fault.rank);
    if (fault.kind == "kill") ::raise(SIGKILL);
    if (fault.kind == "exit") ::_exit(3);
    if (fault.kind == "leave") std::exit(0);
    if (fault.kind == "throw") throw std::runtime_error("the data set is empty");
    ::raise(SIGSTOP);
  }

  std::string folder_;
  std::vector<Fault> faults_{};
  std::atomic<int> rank_{-1};
  std::atomic<bool> ended_{false};
};

/// A part of the state that suffers where it is saved and loaded.
class FaultyPart : public elastic::Part {
 public:
  /// `steps`: how many have been made.
  FaultyPart(Faults& faults, const std::vector<std::int32_t>& steps)
      : faults_(faults), steps_(steps) {}

  void save(std::string& /*bytes*/) override { faults_.at("save", rank(), steps_.size()); }
  void load(const std::string& /*bytes*/) override { faults_.at("load", rank(), steps_.size()); }
  void rejoin() override { faults_.at("rejoin", rank(), steps_.size()); }

 private:
  Faults& faults_;
  const std::vector<std::int32_t>& steps_;
};

}  // namespace kolo::internal
