// SPDX-License-Identifier: Apache-2.0
// Exceptions of every class at the border to C.
#include "c/boundary.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "c/convert.hpp"
#include "kolo/c/error.h"
#include "kolo/elastic.hpp"
#include "kolo/optimizer.hpp"
#include "kolo/training/checkpoint.hpp"

namespace kolo::internal::c {
namespace {

template <typename Exception>
kolo_status status_of(const Exception& exception) {
  return guarded([&] { throw exception; });
}

TEST(CBoundary, EachClassHasItsStatus) {
  EXPECT_EQ(status_of(Error("")), KOLO_ERROR);
  EXPECT_EQ(status_of(InvalidArgument("")), KOLO_INVALID_ARGUMENT);
  EXPECT_EQ(status_of(DuplicateName("")), KOLO_DUPLICATE_NAME);
  EXPECT_EQ(status_of(Mismatch("")), KOLO_MISMATCH);
  EXPECT_EQ(status_of(PeerLeft("")), KOLO_PEER_LEFT);
  EXPECT_EQ(status_of(Stalled("")), KOLO_STALLED);
  EXPECT_EQ(status_of(ShutDown("")), KOLO_SHUT_DOWN);
  EXPECT_EQ(status_of(BackendError("")), KOLO_BACKEND_ERROR);
  EXPECT_EQ(status_of(NotInitialized("")), KOLO_NOT_INITIALIZED);
  EXPECT_EQ(status_of(BackwardFailed("")), KOLO_BACKWARD_FAILED);
  EXPECT_EQ(status_of(HookFailed("")), KOLO_HOOK_FAILED);
  EXPECT_EQ(status_of(CheckpointError(CheckpointFault::io, "", "")), KOLO_CHECKPOINT_ERROR);
  EXPECT_EQ(status_of(elastic::MembershipChanged("")), KOLO_MEMBERSHIP_CHANGED);
  EXPECT_EQ(status_of(std::bad_alloc()), KOLO_OUT_OF_MEMORY);
  EXPECT_EQ(status_of(std::runtime_error("")), KOLO_FOREIGN_EXCEPTION);
}

TEST(CBoundary, TheErrorHasItsMessageTensorAndRanks) {
  EXPECT_EQ(status_of(PeerLeft("gone", "weight", {1, 3})), KOLO_PEER_LEFT);
  const int* ranks = nullptr;
  EXPECT_EQ(kolo_last_error(), KOLO_PEER_LEFT);
  EXPECT_STREQ(kolo_last_error_message(), "gone");
  EXPECT_STREQ(kolo_last_error_tensor(), "weight");
  ASSERT_EQ(kolo_last_error_ranks(&ranks), 2U);
  EXPECT_EQ(ranks[1], 3);
  EXPECT_EQ(guarded([] {}), KOLO_OK);
  EXPECT_EQ(kolo_last_error(), KOLO_PEER_LEFT);  // of the last call that failed
  EXPECT_EQ(status_of(std::bad_alloc()), KOLO_OUT_OF_MEMORY);
  EXPECT_EQ(kolo_last_error_ranks(nullptr), 0U);
  EXPECT_STREQ(kolo_last_error_tensor(), "");
}

TEST(CBoundary, WhatIsNoExceptionHasAMessage) {
  EXPECT_EQ(status_of(7), KOLO_FOREIGN_EXCEPTION);
  EXPECT_NE(std::string(kolo_last_error_message()).find("of type int"), std::string::npos);
}

TEST(CBoundary, EachThreadHasItsError) {
  EXPECT_EQ(status_of(Mismatch("of this thread")), KOLO_MISMATCH);
  std::thread([] {
    EXPECT_EQ(kolo_last_error(), KOLO_OK);
    EXPECT_STREQ(kolo_last_error_message(), "");
    EXPECT_EQ(status_of(Stalled("of the other")), KOLO_STALLED);
  }).join();
  EXPECT_STREQ(kolo_last_error_message(), "of this thread");
}

/// Options whose last member came later.
struct Grown {
  std::size_t size;
  std::int64_t first;
  std::int64_t added;
};

}  // namespace

template <>
inline constexpr std::size_t first_size<Grown> = offsetof(Grown, added);

namespace {

TEST(CBoundary, OptionsOfOtherVersionsKeepTheirMembers) {
  constexpr Grown defaults{sizeof(Grown), 1, 2};
  const Grown older{offsetof(Grown, added), 7, 99};  // 99 is not part of it
  EXPECT_EQ(options_of(&older, defaults, "f").first, 7);
  EXPECT_EQ(options_of(&older, defaults, "f").added, 2);
  struct {
    Grown known{sizeof(Grown) + sizeof(std::int64_t), 7, 8};
    std::int64_t unknown = 0;
  } newer;
  EXPECT_EQ(options_of(&newer.known, defaults, "f").added, 8);
  newer.unknown = 1;
  EXPECT_THROW((void)options_of(&newer.known, defaults, "f"), InvalidArgument);
  for (const std::size_t size : {std::size_t{0}, sizeof(void*), SIZE_MAX}) {
    const Grown wrong{size, 7, 8};
    EXPECT_THROW((void)options_of(&wrong, defaults, "f"), InvalidArgument) << size;
  }
}

TEST(CBoundary, RowsOfAllRanksMustHaveASize) {
  const std::int64_t count = 1;
  const TensorView row(nullptr, Shape{count}, DType::f64);
  void* result = nullptr;
  const Allocator allocate =
      allocator_of(&kolo_allocate, static_cast<void*>(&result), row, nullptr);
  const std::vector<std::int64_t> too_many(4, std::int64_t{1} << 59);  // 2^64 bytes
  EXPECT_THROW((void)allocate(too_many), Error);
  EXPECT_EQ(result, nullptr);
  const std::vector<std::int64_t> two{1, 1};
  EXPECT_NE(allocate(two), nullptr);
  std::free(result);
}

TEST(CBoundary, OperationsOfKolosOwnHaveNoTensor) {
  (void)status_of(PeerLeft("gone", "kolo.stop_requested", {1}));
  EXPECT_STREQ(kolo_last_error_tensor(), "");
  (void)status_of(PeerLeft("gone", "kolo", {1}));
  EXPECT_STREQ(kolo_last_error_tensor(), "kolo");
}

TEST(CBoundary, ATensorKeepsItsNameWhenItsErrorIsPassedOn) {
  const kolo_status status = status_of(PeerLeft("gone", "3.weight", {1}));
  keep_end_of_tensor(6);
  EXPECT_EQ(guarded([&] { throw_status(status, "train"); }), KOLO_PEER_LEFT);
  EXPECT_STREQ(kolo_last_error_tensor(), "weight");
}

// Functions of atexit() run after the destructors of their thread's variables.
TEST(CBoundary, ErrorsAtTheEndOfAProcessAreKept) {
  const auto run = [] {
    EXPECT_EQ(status_of(Mismatch("before the end")), KOLO_MISMATCH);
    (void)std::atexit([] {
      const bool was_cleared = kolo_last_error() == KOLO_OK;
      (void)status_of(Stalled("at the end", "x", {2}));
      const bool has_message = std::string(kolo_last_error_message()) == "at the end";
      std::_Exit(was_cleared && has_message ? 0 : 1);
    });
    std::exit(2);  // NOLINT(concurrency-mt-unsafe): this process has one thread
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace kolo::internal::c
