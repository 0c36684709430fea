// SPDX-License-Identifier: Apache-2.0
// A rank is not accused for a pace that is no longer true.
#include "session/pace/pace_monitor.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>

#include "base/descriptor.hpp"

namespace kolo::internal::session {
namespace {

using namespace std::chrono_literals;
using std::chrono::milliseconds;
using testing::HasSubstr;

/// The root sends no reports.
class NoTransport : public transport::Transport {
 public:
  void send(int /*peer*/, transport::Message /*message*/) override {
    ADD_FAILURE() << "the root has sent a report";
  }
  bool poll(const Receiver& /*receive*/) override { return false; }
  [[nodiscard]] bool flushed() const override { return true; }
};

/// Rank 0 of three, which hears of ranks 1 and 2. All step every 100 ms.
class PaceMonitorTest : public testing::Test {
 protected:
  PaceMonitorTest() {
    std::string folder = testing::TempDir() + "paceXXXXXX";
    EXPECT_NE(::mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    Settings settings;
    settings.status_file = folder + "/status.json";
    monitor_.emplace(settings, PaceMonitor::Place{.session = 1, .rank = 0, .size = 3, .parent = -1},
                     transport_, recorder_, clock_);
  }
  ~PaceMonitorTest() override { std::filesystem::remove_all(folder_); }

  void wait(milliseconds time) {
    for (; time > 0ms; time -= 100ms) clock_.advance(clock_.real() + 100ms);
  }
  /// A second in which this rank computes for so long in each step; 0: it makes none.
  void work(milliseconds computing) {
    const Descriptor descriptor{};
    for (int step = 0; step < 10; ++step) {
      wait(100ms);
      if (computing == 0ms) continue;
      waited_ += 100ms - computing;
      recorder_.waited(waited_);
      const auto tag = recorder_.submitted({.name = "a", .descriptor = descriptor}, clock_.real());
      recorder_.answered(tag, clock_.real());
    }
  }
  void report(int rank, milliseconds computing) {
    steps_ += 10;
    monitor_->receive(
        rank, {.ranks = {{.rank = rank, .steps = steps_, .step = 100ms, .computing = computing}}});
  }
  void check() {
    monitor_->check([] { return std::string(); });
  }
  /// The status with the last report, which another thread writes.
  std::string status() {
    std::string text;
    while (text.find(std::to_string(steps_)) == std::string::npos) {
      std::ifstream file(folder_ + "/status.json");
      text.assign(std::istreambuf_iterator<char>(file), {});
    }
    return text;
  }

  std::string folder_{};
  NoTransport transport_{};
  diagnostics::Recorder recorder_{{}};
  SessionClock clock_{SessionClock::TimePoint(1h)};
  std::optional<PaceMonitor> monitor_{};
  std::uint64_t steps_ = 1'000'000;
  std::chrono::nanoseconds waited_{};
};

TEST_F(PaceMonitorTest, ARankWhoseReportsNoLongerComeIsNotAccused) {
  for (int i = 0; i < 4; ++i) {
    work(0ms);
    report(1, 20ms);
    report(2, 90ms);
    check();
  }
  EXPECT_THAT(status(), HasSubstr("rank 2 is late"));
  for (int i = 0; i < 6; ++i) {
    work(0ms);
    report(1, 20ms);
    check();
  }
  EXPECT_THAT(status(), HasSubstr("no two ranks have made enough steps"));
}

// A program may do other work for a while, such as an evaluation, and then its pace is not known.
TEST_F(PaceMonitorTest, ARankThatMakesNoMoreStepsIsNotAccusedForThoseBefore) {
  for (int i = 0; i < 5; ++i) {
    work(90ms);
    report(1, 20ms);
    check();
  }
  EXPECT_THAT(status(), HasSubstr("rank 0 is late"));
  for (int i = 0; i < 12; ++i) {
    work(0ms);
    report(1, 20ms);
    check();
  }
  EXPECT_THAT(status(), HasSubstr("no two ranks have made enough steps"));
}

}  // namespace
}  // namespace kolo::internal::session
