// SPDX-License-Identifier: Apache-2.0
#include "diagnostics/recorder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

namespace kolo::internal::diagnostics {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using namespace std::chrono_literals;

TimePoint at(std::int64_t nanoseconds) { return TimePoint(std::chrono::nanoseconds(nanoseconds)); }

std::vector<std::uint64_t> counts_of(const EventRing& ring) {
  std::vector<std::uint64_t> counts;
  ring.for_each([&](const Event& event) { counts.push_back(event.count); });
  return counts;
}

TEST(EventRing, KeepsTheLastInTheirOrder) {
  EventRing ring(3);
  EXPECT_THAT(counts_of(ring), ElementsAre());
  for (std::uint64_t i = 0; i < 2; ++i) ring.push({.count = i});
  EXPECT_THAT(counts_of(ring), ElementsAre(0, 1));
  for (std::uint64_t i = 2; i < 3; ++i) ring.push({.count = i});
  EXPECT_THAT(counts_of(ring), ElementsAre(0, 1, 2));
  for (std::uint64_t i = 3; i < 8; ++i) ring.push({.count = i});
  EXPECT_THAT(counts_of(ring), ElementsAre(5, 6, 7));
  EXPECT_EQ(ring.total(), 8U);
}

TEST(EventRing, OfNoCapacityKeepsNothing) {
  EventRing ring(0);
  ring.push({});
  EXPECT_THAT(counts_of(ring), ElementsAre());
}

TEST(Names, AreNumberedOnceInEachSet) {
  Names names(10);
  const std::uint32_t weight = names.find("weight", 0, 0);
  const std::uint32_t bias = names.find("bias", 0, 1);
  const std::uint32_t other = names.find("weight", 1, 2);
  EXPECT_NE(weight, bias);
  EXPECT_NE(weight, other);
  EXPECT_EQ(names.find("weight", 0, 3), weight);
  EXPECT_EQ(names.find("weight", 1, 4), other);
  EXPECT_EQ(*names[bias].text, "bias");
}

TEST(Names, ForgetOnlyWhatIsOldAndNotPending) {
  constexpr std::uint64_t kept = 100;
  constexpr std::uint64_t uses = 100'000;
  Names names(kept);
  const std::uint32_t pending = names.find("pending", 0, 0);
  names[pending].pending = 1;
  for (std::uint64_t use = 1; use < uses; ++use) {
    const std::uint32_t id = names.find("fresh" + std::to_string(use), 0, use);
    ASSERT_EQ(*names[id].text, "fresh" + std::to_string(use));
  }
  EXPECT_GT(names.losses(), 0U);
  EXPECT_LT(names.end(), 2000U);
  EXPECT_EQ(names.find("pending", 0, uses), pending);
  const std::string last = "fresh" + std::to_string(uses - kept + 1);
  const std::uint32_t end = names.end();
  EXPECT_EQ(*names[names.find(last, 0, uses)].text, last);
  EXPECT_EQ(names.end(), end) << "it had been forgotten";
}

Descriptor allreduce() {
  Descriptor descriptor;
  descriptor.type = OperationType::allreduce;
  descriptor.tensors = {{DType::f32, Shape{5}}};
  return descriptor;
}

TEST(Recorder, CountsOperationsOfEachName) {
  const Descriptor descriptor = allreduce();
  Recorder recorder({.flight_recorder = 100});
  for (std::uint64_t i = 0; i < 3; ++i) {
    const Tag tag = recorder.submitted(
        {.name = "a", .number = 7, .set = 0, .bytes = 20, .descriptor = descriptor}, at(1));
    EXPECT_EQ(tag.count, i);
    recorder.batch_started({.number = i, .operations = 1, .bytes = 20}, at(2));
    recorder.finished(tag, i, {at(2), at(3)});
    recorder.batch_done(i, at(3));
  }
  const Tag unnamed = recorder.submitted(
      {.name = "", .number = 7, .set = 0, .bytes = 20, .descriptor = descriptor}, at(4));
  EXPECT_EQ(unnamed.count, 7U);
  const Statistics statistics = recorder.statistics();
  EXPECT_EQ(statistics.submitted, 4U);
  EXPECT_EQ(statistics.finished, 3U);
  EXPECT_EQ(statistics.batches, 3U);
  ASSERT_EQ(statistics.kinds.size(), 1U);
  EXPECT_EQ(statistics.kinds.front().operation, "allreduce");
  EXPECT_EQ(statistics.kinds.front().bytes, 60U);
}

/// The names of the recorder's events, as the flight record has them.
std::string names_of_events(const Recorder& recorder) {
  const std::string path = testing::TempDir() + "names_of_events.json";
  (void)recorder.write(path, "", {});
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(Recorder, ATagKnowsItsNameUntilNamesAreForgotten) {
  const Descriptor descriptor = allreduce();
  constexpr std::uint64_t kept = 4;
  Recorder recorder({.flight_recorder = kept});
  const auto submit = [&](const std::string& name, const Tag& previous) {
    const Tag tag = recorder.submitted({.name = name, .descriptor = descriptor}, at(1), previous);
    recorder.answered(tag, at(2));
    return tag;
  };
  const Tag first = submit("first", {});
  const Tag second = submit("not looked at", first);
  EXPECT_EQ(second.name, first.name);
  EXPECT_EQ(second.count, 1U);
  // Some of so many are forgotten; their numbers become those of others.
  for (int i = 0; i < 10'000; ++i) submit("fresh" + std::to_string(i), {});
  Tag forgotten = second;
  EXPECT_FALSE(recorder.submitted_again(forgotten, at(1)));
  Tag third = submit("first", second);
  EXPECT_EQ(third.count, 0U) << "it had been forgotten, and is counted anew";
  EXPECT_TRUE(recorder.submitted_again(third, at(1)));
  EXPECT_EQ(third.count, 1U);
  recorder.answered(third, at(2));
  Tag fresh;
  EXPECT_FALSE(recorder.submitted_again(fresh, at(1)));
  EXPECT_THAT(names_of_events(recorder), HasSubstr("\"first\""));
}

TEST(Recorder, ANameThatATagKnowsIsInUse) {
  const Descriptor descriptor = allreduce();
  Recorder recorder({.flight_recorder = 100});
  const auto submit = [&](const std::string& name, const Tag& previous) {
    const Tag tag = recorder.submitted({.name = name, .descriptor = descriptor}, at(1), previous);
    recorder.answered(tag, at(2));
    return tag;
  };
  Tag again = submit("again", {});
  for (int i = 0; i < 10'000; ++i) {
    submit("fresh" + std::to_string(i), {});
    again = submit("again", again);
    ASSERT_EQ(again.count, static_cast<std::uint64_t>(i) + 1) << "it was forgotten";
  }
}

TEST(Recorder, CountsAnewWhenAllHaveJoined) {
  const Descriptor descriptor = allreduce();
  Descriptor join;
  join.type = OperationType::join;
  Recorder recorder({.flight_recorder = 100});
  const auto submit = [&](std::string_view name, const Descriptor& its) {
    return recorder.submitted({.name = name, .number = 0, .set = 0, .bytes = 0, .descriptor = its},
                              at(1));
  };
  recorder.failed(submit("a", descriptor), at(1));
  recorder.answered(submit("(join)", join), at(2));
  const Tag tag = submit("a", descriptor);
  EXPECT_EQ(tag.count, 0U);
  EXPECT_EQ(tag.round, 1U);
}

TEST(Recorder, AddsUpTheTimesOfABatch) {
  Recorder recorder({.flight_recorder = 100, .statistics = "stderr"});
  recorder.batch_started({.number = 5, .operations = 2, .bytes = 64}, at(1000));
  recorder.on_phase(5, Phase::pack, at(1100), at(1300));
  recorder.on_phase(5, Phase::reduce, at(1400), at(1500));
  recorder.on_phase(5, Phase::pack, at(1500), at(1600));
  recorder.on_phase(4, Phase::pack, at(1500), at(1600));  // a batch that is not known
  recorder.batch_done(5, at(2000));
  const Statistics statistics = recorder.statistics();
  EXPECT_EQ(statistics.execution.sum, 1000U);
  EXPECT_EQ(statistics.packing.sum, 300U);
  EXPECT_EQ(statistics.reducing.sum, 100U);
  EXPECT_EQ(statistics.unpacking.count, 0U);
  EXPECT_EQ(statistics.waiting.sum, 600U);
  EXPECT_EQ(statistics.batch_operations.sum, 2U);
}

TEST(Histogram, TellsTheUpperEndOfBuckets) {
  Distribution distribution;
  for (const std::uint64_t value : {0U, 1U, 5U, 6U, 7U, 1000U}) distribution.add(value);
  const Histogram histogram = distribution.read();
  EXPECT_EQ(histogram.count, 6U);
  EXPECT_EQ(histogram.buckets[3], 3U);
  EXPECT_DOUBLE_EQ(histogram.mean(), 1019.0 / 6);
  EXPECT_EQ(histogram.quantile(0.0), 0U);
  EXPECT_EQ(histogram.quantile(0.5), 7U);
  EXPECT_EQ(histogram.quantile(1.0), 1000U);
  EXPECT_EQ(Histogram{}.quantile(0.5), 0U);
}

TEST(Statistics, ArePrintedWithTheirUnits) {
  Statistics statistics;
  statistics.submitted = 3;
  statistics.kinds = {{"allreduce", 2, 2048}};
  statistics.negotiation = {.count = 1, .sum = 1500, .max = 1500};
  statistics.negotiation.buckets[11] = 1;
  const std::string text = to_string(statistics);
  EXPECT_THAT(text, testing::HasSubstr("operations: 3 submitted"));
  EXPECT_THAT(text, testing::HasSubstr("allreduce: 2, 2.0 KiB"));
  EXPECT_THAT(text, testing::ContainsRegex("negotiation +1 +1.5 us"));
}

/// A program's signal handler: it counts the signals, and calls the handler installed before.
class ChainedHandler {
 public:
  ChainedHandler() {
    calls = 0;
    struct sigaction own {};
    own.sa_sigaction = [](int signal, siginfo_t* info, void* context) {
      calls = calls + 1;
      if (calls < 10) before.sa_sigaction(signal, info, context);
    };
    own.sa_flags = SA_SIGINFO;
    ::sigaction(SIGUSR1, &own, &before);
  }
  ~ChainedHandler() { ::sigaction(SIGUSR1, &before, nullptr); }
  ChainedHandler& operator=(ChainedHandler&&) = delete;

  static inline volatile std::sig_atomic_t calls = 0;

 private:
  static inline struct sigaction before {};
};

TEST(RecordSignal, OfASecondSessionDoesNotCallItselfThroughTheProgramsHandler) {
  ::signal(SIGUSR1, SIG_IGN);
  {
    std::optional<RecordSignal> first(SIGUSR1);
    const ChainedHandler programs;
    first.reset();
    for (int session = 0; session < 40; ++session) {
      RecordSignal next(SIGUSR1);
      ChainedHandler::calls = 0;
      ::raise(SIGUSR1);
      EXPECT_EQ(ChainedHandler::calls, 1);
      EXPECT_TRUE(next.came());
      EXPECT_FALSE(next.came());
    }
  }
  // The first one's handler was left behind, and is what the signal has now.
  std::optional<RecordSignal> last(SIGUSR1);
  ::raise(SIGUSR1);
  EXPECT_TRUE(last->came());
  last.reset();
  struct sigaction now {};
  ::sigaction(SIGUSR1, nullptr, &now);
  EXPECT_EQ(now.sa_handler, SIG_IGN);
}

}  // namespace
}  // namespace kolo::internal::diagnostics
