// Between threads of one process; neighbourhood_test.cpp has processes.
#include "node/descriptor_exchange.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <barrier>
#include <chrono>
#include <random>
#include <string>
#include <thread>

#include "kolo/error.hpp"

namespace kolo::node {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

std::string new_name() {
  return fmt::format("test-{:08x}{:08x}", std::random_device{}(), std::random_device{}());
}

/// A counter: reading it gives `value` once.
FileDescriptor counter_of(unsigned value) { return FileDescriptor(::eventfd(value, EFD_NONBLOCK)); }

std::uint64_t read_counter(const FileDescriptor& fd) {
  std::uint64_t value = 0;
  return ::read(fd.get(), &value, sizeof value) == sizeof value ? value : 0;
}

/// What each of the party's threads is told; those of the others end as they should. `takes_part`:
/// the others do not come at all.
struct Ends {
  std::vector<std::vector<Parcel>> parcels;
  std::vector<std::string> errors;
};
Ends exchange_among(const std::vector<Party>& parties, std::chrono::nanoseconds patience) {
  const std::size_t count = parties.size();
  Ends ends{std::vector<std::vector<Parcel>>(count), std::vector<std::string>(count)};
  std::barrier<> all(static_cast<std::ptrdiff_t>(count));
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < count; ++i)
    threads.emplace_back([&, i] {
      const auto number = static_cast<unsigned>(10 * parties[i].index);
      const FileDescriptor first = counter_of(number + 1);
      const FileDescriptor second = counter_of(number + 2);
      try {
        ends.parcels[i] = exchange_descriptors(
            parties[i], std::array{first.get(), second.get()}, [&] { all.arrive_and_wait(); },
            patience);
      } catch (const BackendError& error) {
        ends.errors[i] = error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return ends;
}

std::vector<Party> parties_of(int size, int taking_part) {
  const std::string name = new_name();
  std::vector<Party> parties;
  for (int index = 0; index < taking_part; ++index) parties.push_back({name, index, size});
  return parties;
}

TEST(DescriptorExchange, GivesEachTheOthersDescriptors) {
  for (const int size : {1, 2, 3, 8, 40}) {
    const Ends ends = exchange_among(parties_of(size, size), 30s);
    for (std::size_t to = 0; to < ends.parcels.size(); ++to) {
      ASSERT_EQ(ends.errors[to], "");
      ASSERT_EQ(ends.parcels[to].size(), ends.parcels.size());
      EXPECT_TRUE(ends.parcels[to][to].descriptors.empty());
    }
    // A counter gives its value to the first who reads it.
    for (std::size_t to = 0; to < ends.parcels.size(); ++to) {
      const std::size_t from = (to + 1) % ends.parcels.size();
      if (from == to) continue;
      const Parcel& parcel = ends.parcels[to][from];
      EXPECT_EQ(parcel.pid, ::getpid());
      ASSERT_EQ(parcel.descriptors.size(), 2U);
      EXPECT_EQ(read_counter(parcel.descriptors[0]), 10 * from + 1);
      EXPECT_EQ(read_counter(parcel.descriptors[1]), 10 * from + 2);
    }
  }
}

TEST(DescriptorExchange, OfTwoPartiesAtOnce) {
  std::vector<Party> parties = parties_of(3, 3);
  const std::vector<Party> others = parties_of(2, 2);
  parties.insert(parties.end(), others.begin(), others.end());
  const Ends ends = exchange_among(parties, 30s);
  EXPECT_THAT(ends.errors, testing::Each(""));
  EXPECT_EQ(ends.parcels[0].size(), 3U);
  EXPECT_EQ(ends.parcels[4].size(), 2U);
}

TEST(DescriptorExchange, OneThatNeverComesIsAnErrorSoon) {
  const auto since = std::chrono::steady_clock::now();
  const Ends ends = exchange_among(parties_of(3, 2), 1h);
  EXPECT_LT(std::chrono::steady_clock::now() - since, 30s);
  EXPECT_THAT(ends.errors, testing::Each(HasSubstr("another rank of this host")));
}

TEST(DescriptorExchange, OneWhoseNameIsTakenFailsAndReachesTheBarrier) {
  std::vector<Party> parties = parties_of(2, 2);
  parties[1].index = 0;
  const Ends ends = exchange_among(parties, 1h);
  EXPECT_THAT(ends.errors, testing::Contains(HasSubstr("bind of a local socket")));
}

TEST(DescriptorExchange, OneThatIsSilentIsGivenUp) {
  // The third is there, for as long as the others try, and sends nothing.
  const std::vector<Party> parties = parties_of(3, 3);
  std::barrier<> all(3);
  std::barrier<> end(3);
  const auto take_part = [&](std::size_t index) {
    try {
      const FileDescriptor fd = counter_of(1);
      (void)exchange_descriptors(
          parties[index], std::array{fd.get()},
          [&] {
            all.arrive_and_wait();
            if (index == 2) end.arrive_and_wait();
          },
          index == 2 ? 0ms : 50ms);
      ADD_FAILURE() << "of " << index;
    } catch (const BackendError& error) {
      if (index < 2) {
        EXPECT_THAT(error.what(), HasSubstr("1 of the 3 ranks of this host were not heard of"));
        end.arrive_and_wait();
      }
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t index = 0; index < 3; ++index) threads.emplace_back(take_part, index);
  for (std::thread& thread : threads) thread.join();
}

TEST(DescriptorExchange, ANameMayBeTooLong) {
  EXPECT_THAT(
      [] {
        (void)exchange_descriptors(
            {std::string(200, 'x'), 0, 2}, {}, [] {}, 1h);
      },
      testing::ThrowsMessage<BackendError>(HasSubstr("too long")));
}

TEST(DescriptorExchange, CallsTheBarrierOnceWhateverGoesWrong) {
  int calls = 0;
  const auto count = [&] { ++calls; };
  EXPECT_THROW((void)exchange_descriptors({std::string(200, 'x'), 0, 2}, {}, count, 1h),
               BackendError);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(exchange_descriptors({new_name(), 0, 1}, {}, count, 1h).size(), 1U);
  EXPECT_EQ(calls, 2);
}

}  // namespace
}  // namespace kolo::node
