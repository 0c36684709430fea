// SPDX-License-Identifier: Apache-2.0
// Exceptions of every class at the border to C.
#include "c/boundary.hpp"

#include <gtest/gtest.h>

#include <new>
#include <string>
#include <thread>

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
  EXPECT_EQ(status_of(CallbackFailed("")), KOLO_CALLBACK_FAILED);
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

TEST(CBoundary, ACallbackPassesAnErrorOn) {
  const auto passed_on =
      guarded([] { throw_if_failed(guarded([] { throw Stalled("late", "x", {2}); }), "train"); });
  EXPECT_EQ(passed_on, KOLO_STALLED);
  EXPECT_STREQ(kolo_last_error_tensor(), "x");
  EXPECT_EQ(guarded([] { throw_if_failed(99, "train"); }), KOLO_CALLBACK_FAILED);
  EXPECT_STREQ(kolo_last_error_message(), "train returned 99");
}

}  // namespace
}  // namespace kolo::internal::c
