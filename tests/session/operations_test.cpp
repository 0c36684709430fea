// SPDX-License-Identifier: Apache-2.0
// Operation objects: repeated submissions, and the state that the objects keep.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "kolo/error.hpp"
#include "kolo/future.hpp"
#include "session/engine/engine.hpp"
#include "thread_links.hpp"

namespace {

/// No block of so many bytes or more can be had.
std::atomic<std::size_t> refused_bytes{std::numeric_limits<std::size_t>::max()};

}  // namespace

// Not inlined: compilers would take malloc and delete for a mismatch.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  void* const memory = bytes < refused_bytes ? std::malloc(bytes) : nullptr;
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t& /*tag*/) noexcept {
  return bytes < refused_bytes ? std::malloc(bytes) : nullptr;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t /*bytes*/) noexcept {
  std::free(memory);
}

namespace kolo::internal::session {
namespace {

using testing::HasSubstr;
using TimePoint = std::chrono::steady_clock::time_point;

/// Ranks that submit what a test asks them to.
class Operations : public testing::Test {
 protected:
  explicit Operations(int ranks = 1) : world_(std::make_shared<test::ThreadWorld>(ranks)) {
    Topology topology;
    topology.size = topology.local_size = ranks;
    topology.node_of.assign(static_cast<std::size_t>(ranks), 0);
    for (int rank = 0; rank < ranks; ++rank) {
      topology.rank = topology.local_rank = rank;
      engines_.push_back(
          std::make_shared<Engine>(Settings{.stall_warning = {}, .flight_recorder = 0}, 1, topology,
                                   std::make_unique<test::ThreadLinks>(world_, rank)));
      engines_.back()->start();
    }
  }
  ~Operations() override { end(); }

  void end() {
    std::vector<std::thread> threads;
    for (auto& engine : engines_)
      threads.emplace_back([&engine] {
        if (engine) engine->shut_down(true, "");
      });
    for (std::thread& thread : threads) thread.join();
    engines_.clear();
  }

  OperationPtr submit(const std::string& name, double& element, std::size_t rank = 0,
                      bool waits = true) {
    Descriptor descriptor;
    descriptor.type = OperationType::allreduce;
    descriptor.tensors = {{DType::f64, Shape{}}};
    backend::BatchTensor member;
    member.input = member.output = &element;
    member.dtype = DType::f64;
    member.rows = 1;
    return engines_[rank]->submit({.name = name, .descriptor = descriptor, .members = {member}},
                                  waits);
  }

  OperationPtr submit_again(const std::string& name, const TensorView& tensor, std::size_t rank = 0,
                            double prescale = 1.0, SetId set = world_set) {
    return engines_[rank]->submit_again({name, set, tensor, ReduceOp::sum, prescale, 1.0,
                                         Compression::none, AverageOver::all, false, /*step=*/5},
                                        /*waits=*/false);
  }

  /// The error of a rank's operation; "none" if it succeeds, "pending" if it does not complete.
  std::string outcome(const OperationPtr& operation, std::size_t rank = 0) {
    const TimePoint patience = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    if (!engines_[rank]->wait(*operation, patience)) return "pending";
    try {
      if (operation->error()) std::rethrow_exception(operation->error());
      return "none";
    } catch (const BackendError& error) {
      return std::string("BackendError: ") + error.what();
    } catch (const PeerLeft& error) {
      return std::string("PeerLeft: ") + error.what();
    } catch (const std::exception& error) {
      return error.what();
    }
  }

  static void wait(const OperationPtr& operation) {
    ASSERT_TRUE(operation->engine()->wait(*operation, TimePoint::max()));
    EXPECT_FALSE(operation->error());
  }

  std::shared_ptr<test::ThreadWorld> world_;
  std::vector<std::shared_ptr<Engine>> engines_{};
};

TEST_F(Operations, WhatIsSubmittedAgainIsTheSameObject) {
  for (const std::string name : {"name", ""}) {
    double element = 3.0;
    OperationPtr operation = submit(name, element);
    wait(operation);
    const detail::Operation* const first = operation.get();
    operation.reset();
    for (int i = 0; i < 3; ++i) {
      operation = submit(name, element);
      EXPECT_EQ(operation.get(), first) << name;
      wait(operation);
      operation.reset();
    }
    EXPECT_EQ(element, 3.0);
  }
}

TEST_F(Operations, WhatSomebodyHoldsIsLeftToHim) {
  for (const std::string name : {"name", ""}) {
    double element = 3.0;
    const OperationPtr first = submit(name, element);
    wait(first);
    const OperationPtr second = submit(name, element);
    EXPECT_NE(second, first) << name;
    EXPECT_TRUE(first->done());
    wait(second);
  }
}

TEST_F(Operations, NamesMayBeMany) {
  // More than are kept; those that were forgotten may come again.
  for (int i = 0; i < 9010; ++i) {
    double element = i;
    wait(submit("name" + std::to_string(i % 9000), element));
    EXPECT_EQ(element, i);
  }
}

TEST_F(Operations, EndWithTheSession) {
  const std::weak_ptr<Engine> engine = engines_.front();
  double element = 3.0;
  wait(submit("name", element));
  wait(submit("", element));
  OperationPtr held = submit("held", element);
  wait(held);
  end();
  EXPECT_TRUE(engine.expired());
  EXPECT_TRUE(held->done());
  EXPECT_EQ(held->engine(), nullptr);
}

TEST_F(Operations, NoneIsLostWhenTheDriverFailsWithAnother) {
  std::atomic<bool> driver_is_busy{false};
  std::atomic<bool> all_are_submitted{false};
  world_->before_batches([&](int) {
    driver_is_busy = true;
    driver_is_busy.notify_all();
    all_are_submitted.wait(false);
  });
  double element = 1.0;
  const OperationPtr first = submit("first", element, 0, /*waits=*/false);
  driver_is_busy.wait(false);
  // The driver will take them together, and cannot copy the long name.
  const std::string long_name(1 << 20, 'x');
  std::vector<double> elements(3);
  const OperationPtr before = submit("before", elements[0]);
  const OperationPtr failing = submit(long_name, elements[1]);
  const OperationPtr after = submit("after", elements[2]);
  refused_bytes = long_name.size();
  all_are_submitted = true;
  all_are_submitted.notify_all();
  for (const OperationPtr& operation : {before, failing, after})
    EXPECT_THAT(outcome(operation), HasSubstr("bad_alloc"));
  refused_bytes = std::numeric_limits<std::size_t>::max();
  EXPECT_EQ(outcome(first), "none");
}

TEST_F(Operations, ACallbackOfTheDriverMayNotCallKolo) {
  std::atomic<int> refused{0};
  world_->before_batches([&](int) {
    double unused = 0.0;
    EXPECT_THROW((void)submit("inner", unused), InvalidArgument);
    EXPECT_THROW((void)engines_.front()->write_flight_record("never.json"), InvalidArgument);
    EXPECT_THROW(engines_.front()->shut_down(true, ""), InvalidArgument);
    ++refused;
  });
  double element = 3.0;
  EXPECT_EQ(outcome(submit("outer", element)), "none");
  EXPECT_EQ(outcome(submit("later", element)), "none") << "the rank has not left";
  EXPECT_EQ(refused, 2);
}

TEST_F(Operations, AClosedQueueReturnsWhatIsLeftAndTakesNothing) {
  OperationQueue queue(0);
  Submission early{.name = "early"};
  Submission late{.name = "late"};
  const OperationPtr left = queue.push(*engines_.front(), early, Notice::rung);
  EXPECT_THAT(queue.close(), testing::ElementsAre(left.get()));
  EXPECT_THROW((void)queue.push(*engines_.front(), late, Notice::rung), ShutDown);
}

TEST_F(Operations, WhatRepeatsALoopIsNotDescribedAgain) {
  const std::string name = "a";
  const std::string other = "b";
  double element = 1.0;
  const TensorView tensor(element);
  EXPECT_EQ(submit_again(name, tensor), nullptr) << "it was never submitted";
  for (int pass = 0; pass < 2; ++pass)
    for (const std::string& one : {name, other}) wait(submit(one, element));
  double moved = 2.0;
  OperationPtr operation = submit_again(name, TensorView(moved));
  ASSERT_NE(operation, nullptr);
  wait(operation);
  EXPECT_EQ(operation->members().front().input, &moved);
  EXPECT_EQ(operation->descriptor().step, 5);
  EXPECT_EQ(submit_again(name, tensor), nullptr) << "the other comes next";
  EXPECT_EQ(submit_again(other, tensor, 0, 2.0), nullptr);
  EXPECT_FALSE(is_same(0.0, -0.0)) << "a factor, which decides the signs of zeros";
  EXPECT_EQ(submit_again(other, tensor, 0, 1.0, 3), nullptr);
  float single = 1.0F;
  EXPECT_EQ(submit_again(other, TensorView(single)), nullptr);
  EXPECT_EQ(submit_again(other, TensorView(&element, Shape(1))), nullptr);
  wait(submit_again(other, tensor));
  EXPECT_EQ(submit_again(name, tensor), nullptr) << "a future still has it";
  operation.reset();
  wait(submit_again(name, tensor));
}

class OperationsOfTwo : public Operations {
 protected:
  OperationsOfTwo() : Operations(2) {}
};

TEST_F(OperationsOfTwo, WhateverIsThrownTheSessionFailsOnAllRanks) {
  struct Thrown {};
  world_->before_batches([](int rank) {
    if (rank == 0) throw Thrown();
  });
  double own = 1.0;
  double peers = 2.0;
  double alone = 3.0;
  const OperationPtr pending = submit("alone", alone);
  const OperationPtr first = submit("name", own);
  const OperationPtr second = submit("name", peers, 1);
  EXPECT_THAT(outcome(first), testing::AllOf(HasSubstr("BackendError"), HasSubstr("Thrown")));
  EXPECT_THAT(outcome(pending), HasSubstr("BackendError"));
  EXPECT_THAT(outcome(second, 1), testing::AllOf(HasSubstr("PeerLeft"), HasSubstr("Thrown")));
}

TEST_F(OperationsOfTwo, AFutureThatACallbackOfTheDriverDestroysGoesOn) {
  double pending = 1.0;
  double peers = 2.0;
  const OperationPtr operation = submit("pending", pending);
  int* const value = new int(0);
  std::optional<Future<int>> future(std::in_place, operation, std::unique_ptr<int>(value));
  world_->before_batches([&](int rank) {
    if (rank == 0) future.reset();
  });
  double own = 1.0;
  double others = 2.0;
  const OperationPtr second = submit("name", others, 1);
  EXPECT_EQ(outcome(submit("name", own)), "none");
  EXPECT_FALSE(future);
  EXPECT_FALSE(operation->done());
  const OperationPtr last = submit("pending", peers, 1);
  EXPECT_EQ(outcome(operation), "none");
  EXPECT_EQ(outcome(last, 1), "none");
  EXPECT_EQ(pending, 3.0);
  delete value;  // the future has left it to the operation
}

TEST_F(OperationsOfTwo, ANameIsFreeOnceItsOperationIsDone) {
  double own = 1.0;
  double peers = 2.0;
  const OperationPtr pending = submit("name", own);
  double unused = 0.0;
  try {
    static_cast<void>(submit("name", unused));
    ADD_FAILURE() << "the name was given twice";
  } catch (const DuplicateName& error) {
    EXPECT_THAT(error.what(), HasSubstr("allreduce \"name\""));
  }
  EXPECT_FALSE(pending->done());
  std::thread other_rank([&] {
    wait(submit("name", peers, 1));
    wait(submit("name", peers, 1));
  });
  wait(pending);
  EXPECT_EQ(own, 3.0);
  wait(submit("name", own));
  other_rank.join();
  EXPECT_EQ(own, 6.0);
  EXPECT_EQ(peers, 6.0);
}

TEST_F(OperationsOfTwo, ALoopThatRepeatsItselfIsReducedEachTime) {
  const auto loop = [&](std::size_t rank) {
    std::vector<double> elements(20);
    for (int pass = 0; pass < 30; ++pass) {
      std::vector<OperationPtr> operations;
      for (std::size_t i = 0; i < elements.size(); ++i) {
        elements[i] = static_cast<double>(rank) + pass;
        const std::string name = std::to_string(i);
        OperationPtr operation = submit_again(name, TensorView(elements[i]), rank);
        EXPECT_EQ(operation == nullptr, pass == 0 || (pass == 1 && i == 0));
        operations.push_back(operation != nullptr ? operation : submit(name, elements[i], rank));
      }
      for (const OperationPtr& operation : operations) wait(operation);
      EXPECT_THAT(elements, testing::Each(2.0 * pass + 1.0));
    }
  };
  std::thread other_rank([&] { loop(1); });
  loop(0);
  other_rank.join();
}

TEST_F(OperationsOfTwo, NamesThatAreUsedOnceKeepNoOperation) {
  using Kept = std::weak_ptr<detail::Operation>;
  constexpr int names = 2000;
  std::vector<Kept> once;
  std::vector<Kept> twice;
  const auto loop = [&](std::size_t rank) {
    double element = 1.0;
    const auto run = [&](const std::string& name) {
      const OperationPtr operation = submit(name, element, rank);
      wait(operation);
      return Kept(operation);
    };
    for (int i = 0; i < names; ++i) {
      const Kept single = run("once " + std::to_string(i));
      const Kept repeated = run("twice " + std::to_string(i % 100));
      if (rank != 0) continue;
      once.push_back(single);
      if (i >= names - 100) twice.push_back(repeated);
    }
  };
  std::thread other_rank([&] { loop(1); });
  loop(0);
  other_rank.join();
  const auto kept = [](const std::vector<Kept>& all) {
    return std::ranges::count_if(all, [](const Kept& each) { return !each.expired(); });
  };
  EXPECT_LE(kept(once), 512);
  EXPECT_EQ(kept(twice), 100);
}

TEST_F(OperationsOfTwo, ManyNamesForgetNoneThatIsPending) {
  double element = 1.0;
  const OperationPtr pending = submit("pending", element);
  const auto submit_many = [&](std::size_t rank) {
    for (const std::string round : {"a", "b"}) {
      std::vector<double> elements(5000);
      std::vector<OperationPtr> operations;
      for (std::size_t i = 0; i < elements.size(); ++i)
        operations.push_back(submit(round + std::to_string(i), elements[i] = 1.0, rank));
      for (const OperationPtr& operation : operations) wait(operation);
      EXPECT_THAT(elements, testing::Each(2.0));
    }
  };
  std::thread other_rank([&] { submit_many(1); });
  submit_many(0);
  other_rank.join();
  EXPECT_THROW(static_cast<void>(submit("pending", element)), DuplicateName);
  EXPECT_FALSE(pending->done());
}

}  // namespace
}  // namespace kolo::internal::session
