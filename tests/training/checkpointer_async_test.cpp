// SPDX-License-Identifier: Apache-2.0
// Checkpoints that are written while the program goes on.
#include <gmock/gmock.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <fstream>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "checkpoints.hpp"

namespace kolo::internal {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing_support::checkpoint_error_of;
using CheckpointsAside = testing_support::Checkpoints;

constexpr std::size_t large_elements = std::size_t{1} << 15U;

std::vector<float> sequence(float first) {
  std::vector<float> values(large_elements);
  std::iota(values.begin(), values.end(), first);
  return values;
}

/// A part whose tensor cannot be read if `fails`.
NamedViews unreadable(bool fails) {
  NamedViews own;
  own["x"].tensors["y"] = TensorSource(DType::f32, Shape{2}, [fails](std::uint64_t, auto) {
    if (fails) throw std::runtime_error("the memory is gone");
  });
  return own;
}

TEST_F(CheckpointsAside, HoldTheValuesOfTheirStep) {
  Checkpointer checkpoints(keeping(3));
  std::vector<float> weight = sequence(0);
  std::int64_t own = me_;
  for (const std::int64_t step : {1, 2, 3}) {
    EXPECT_TRUE(checkpoints.save_async(step, {{"model", StateView({{"weight", weight}})}},
                                       {.per_rank = {{"own", StateView({{"value", own}})}}}));
    for (float& value : weight) value += 1;
    own += 100;
  }
  const std::optional<Checkpoint> found = checkpoints.load_latest();
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->step, 3);
  load_state({{"weight", weight}}, found->part("model"));
  EXPECT_EQ(weight, sequence(2));
  load_state({{"value", own}}, found->per_rank_part("own"));
  EXPECT_EQ(own, 200 + me_);
  EXPECT_THAT(steps(), ElementsAre(1, 2, 3));
}

TEST_F(CheckpointsAside, AreThereWhenTheObjectHasEnded) {
  {
    Checkpointer checkpoints(keeping(2));
    checkpoints.save_async(1, parts(1));
    Checkpointer moved = std::move(checkpoints);
    moved.save_async(2, parts(2));
  }
  barrier();  // all ranks have written
  // Rank 0 ends only when all files are there.
  EXPECT_THAT(steps(), ElementsAre(1, 2));
}

TEST_F(CheckpointsAside, SaveEmptyParts) {
  Checkpointer checkpoints(keeping(2));
  checkpoints.save_async(1, {});
  checkpoints.wait();
  EXPECT_TRUE(checkpoints.load_latest()->parts.empty());
  checkpoints.wait();
}

TEST_F(CheckpointsAside, AFailureIsThrownByTheNextCallOnEveryRank) {
  Checkpointer checkpoints(keeping(2));
  checkpoints.save(1, parts(1));
  ::rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  if (me_ == last_) {
    const ::rlimit small{.rlim_cur = 100, .rlim_max = before.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &small);
  }
  EXPECT_TRUE(checkpoints.save_async(2, parts(2)));
  const CheckpointError error = checkpoint_error_of([&] { checkpoints.wait(); });
  ::setrlimit(RLIMIT_FSIZE, &before);
  static_cast<void>(std::signal(SIGXFSZ, handler));
  EXPECT_EQ(error.fault(), CheckpointFault::io);
  EXPECT_THAT(error.what(), HasSubstr("cannot write checkpoint"));
  EXPECT_THAT(steps(), ElementsAre(1));
  checkpoints.wait();  // it was reported
  EXPECT_TRUE(checkpoints.save_async(3, parts(3)));
  EXPECT_EQ(checkpoints.load_latest()->step, 3);
}

TEST_F(CheckpointsAside, TensorsThatCannotBeReadAreAnErrorOnEveryRank) {
  Checkpointer checkpoints(keeping(2));
  const NamedViews own = unreadable(me_ == last_);
  checkpoints.save_async(1, parts(1), {.per_rank = own});
  const CheckpointError error = checkpoint_error_of([&] { checkpoints.save_async(2, parts(2)); });
  EXPECT_THAT(error.what(), HasSubstr("the memory is gone"));
  EXPECT_TRUE(checkpoints.save_async(2, parts(2)));
  checkpoints.wait();
  EXPECT_THAT(steps(), ElementsAre(2));
}

TEST_F(CheckpointsAside, AreRefusedOnAllRanksOrOnNone) {
  Checkpointer checkpoints(keeping(2));
  std::vector<float> large(std::size_t{1} << 20U);
  std::int64_t saved = 0;
  for (std::int64_t step = 1; step <= 20; ++step) {
    const bool begun =
        checkpoints
            .save_async(step, {{"model", StateView({{"weight", large}})}}, {}, IfBusy::refuse)
            .has_value();
    int ranks = begun ? 1 : 0;
    allreduce(ranks, {.op = ReduceOp::sum});
    EXPECT_EQ(ranks, begun ? n_ : 0);
    if (begun) saved = step;
  }
  EXPECT_EQ(checkpoints.load_latest()->step, saved);
}

// Not that of its victims.
TEST_F(CheckpointsAside, TheCauseOfAFailureIsReported) {
  Checkpointer checkpoints(keeping(2));
  const std::vector<float> large(std::size_t{1} << 18U);
  NamedViews own{{"x", StateView({{"y", large}})}};
  if (me_ == 0)
    own["x"].tensors["y"] = TensorSource(DType::f32, Shape{1}, [](std::uint64_t, std::span<char>) {
      throw std::runtime_error("the memory is gone");
    });
  for (std::int64_t step = 1; step <= 10; ++step) {
    checkpoints.save_async(step, {}, {.per_rank = own});
    EXPECT_THAT(checkpoint_error_of([&] { checkpoints.wait(); }).what(),
                HasSubstr("the memory is gone"));
  }
}

// A failed save does not count as one that is still being written.
TEST_F(CheckpointsAside, AfterAFailureAreNotRefusedForEver) {
  Checkpointer checkpoints(keeping(2));
  const NamedViews own = unreadable(me_ == last_);
  checkpoints.save_async(1, parts(1), {.per_rank = own});
  const CheckpointError error = checkpoint_error_of([&] {
    while (!checkpoints.save_async(2, parts(2), {}, IfBusy::refuse)) {
    }
  });
  EXPECT_THAT(error.what(), HasSubstr("the memory is gone"));
}

/// Limits the address space of this process to what it has and `bytes` more.
class MemoryLimit {
 public:
  explicit MemoryLimit(std::uint64_t bytes) {
    ::getrlimit(RLIMIT_AS, &before_);
    std::uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const ::rlimit limit{.rlim_cur = pages * static_cast<std::uint64_t>(::getpagesize()) + bytes,
                         .rlim_max = before_.rlim_max};
    ::setrlimit(RLIMIT_AS, &limit);
  }
  MemoryLimit(const MemoryLimit&) = delete;
  MemoryLimit& operator=(const MemoryLimit&) = delete;
  ~MemoryLimit() { ::setrlimit(RLIMIT_AS, &before_); }

 private:
  ::rlimit before_{};
};

// Sanitizers end a process that asks for too much, and need memory themselves.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_F(CheckpointsAside, AfterOneThatWasTooLargeAreSaved) {
  Checkpointer checkpoints(keeping(2));
  checkpoints.save_async(1, parts(1));
  NamedViews too_large = parts(2);
  too_large["large"].tensors["x"] =
      TensorSource(DType::u8, Shape{std::int64_t{1} << 60}, [](auto, auto) {});
  checkpoints.save_async(2, too_large);
  EXPECT_THAT(checkpoint_error_of([&] { checkpoints.wait(); }).what(),
              HasSubstr("could not be copied: std::bad_alloc"));
  checkpoints.save_async(3, parts(3));
  EXPECT_EQ(checkpoints.load_latest()->step, 3);
}

TEST_F(CheckpointsAside, NeedMemoryForThisRanksShareOnly) {
  constexpr std::uint64_t whole = std::uint64_t{1} << 29U;
  constexpr int tensors = 32;
  const std::vector<char> one(whole / tensors, 'x');  // all tensors have the same elements
  ConstTensorViews views;
  for (int i = 0; i < tensors; ++i) views.emplace(std::to_string(i), one);
  Checkpointer checkpoints(keeping(1));
  const std::uint64_t share = whole / static_cast<std::uint64_t>(n_);
  // The thread's stack, and what the library of C reserves for it, are not small.
  const MemoryLimit limit(share + (whole >> 2U) + (whole >> 3U));
  checkpoints.save_async(1, {{"model", StateView(views)}});
  checkpoints.save(2, {{"model", StateView(views)}});
  EXPECT_EQ(checkpoints.load_latest()->step, 2);
}
#endif

/// The last rank, where it may, sees another directory at this path: that of a host by itself.
class SeparateHosts : public testing_support::Checkpoints {
 protected:
  SeparateHosts() {
    std::string path = directory().parent_path().string();
    broadcast(path, 0);
    if (n_ > 1 && me_ == last_ && is_apart_)
      is_apart_ = ::mount("none", path.c_str(), "tmpfs", 0, nullptr) == 0;
    allreduce(is_apart_, {.op = ReduceOp::min});
  }

  // Only this thread, and those that it starts, leave the others' file system.
  static bool leaves() {
    return ::unshare(CLONE_NEWNS) == 0 &&
           ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
  }
  bool is_apart_ = me_ != last_ || n_ == 1 || leaves();
};

TEST_F(SeparateHosts, SaveAndLoadByRank0) {
  if (!is_apart_) GTEST_SKIP() << "this user cannot mount a file system";
  Checkpointer checkpoints({.directory = directory().parent_path() / "run", .keep_last = 3});
  const std::string mine = "random state of rank " + std::to_string(me_);
  std::vector<float> weight = sequence(3);
  const auto save = [&](std::int64_t step) {
    checkpoints.save_async(step, {{"model", StateView({{"weight", weight}})}, {"text", "of all"}},
                           {.per_rank = {{"random", mine}}});
    return checkpoints.load_latest();
  };
  std::optional<Checkpoint> found = save(1);
  ASSERT_TRUE(found.has_value());
  load_state({{"weight", weight}}, found->part("model"));
  EXPECT_EQ(weight, sequence(3));
  EXPECT_EQ(found->part("text").text(), "of all");
  EXPECT_EQ(found->per_rank_part("random").text(), mine);
  EXPECT_EQ(found->per_rank_parts("random").size(), static_cast<std::size_t>(n_));
  // That host has another checkpoint of the same path and step.
  if (n_ > 1 && me_ == last_) {
    const CheckpointHeader header{.step = 2, .ranks = n_, .files = 1, .key = "other"};
    const fs::path folder = found->path.parent_path() / "checkpoint-0000000002";
    fs::create_directories(folder);
    write_checkpoint_file(checkpoint_file(folder, 0, 1), header,
                          flatten({{"text", "of another run"}}));
    write_checkpoint_index(folder, header);
  }
  found = save(2);
  EXPECT_EQ(found->step, 2);
  EXPECT_EQ(found->part("text").text(), "of all");
}

}  // namespace
}  // namespace kolo::internal
