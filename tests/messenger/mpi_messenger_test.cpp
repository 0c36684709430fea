// SPDX-License-Identifier: Apache-2.0
// Properties of the MPI messenger only.
#include "messenger/mpi_messenger.hpp"

#include <gtest/gtest.h>

#include <chrono>

#include "session/startup/cpu_links.hpp"
#include "transport/mpi_transport.hpp"

namespace kolo::internal::messenger {
namespace {

using namespace std::chrono_literals;

class MpiMessengerTest : public testing::Test {
 protected:
  MpiMessengerTest() {
    MPI_Comm_dup(MPI_COMM_WORLD, &comm_);
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
  }
  ~MpiMessengerTest() override { MPI_Comm_free(&comm_); }

  MPI_Comm comm_ = MPI_COMM_NULL;
};

// The bytes that a suspended job left inside MPI move once it runs again.
TEST_F(MpiMessengerTest, MpiIsCalledAfterASuspensionThatIsLongerThanTheTimeout) {
  MpiActivity activity(30s);
  auto now = MpiActivity::TimePoint() + 1h;
  activity.begin();
  activity.end(now);
  now += 10min;
  activity.call_if_due(comm_, now);
  EXPECT_TRUE(activity.calls_are_due());
  for (int call = 0; call < 400 && activity.calls_are_due(); ++call)
    activity.call_if_due(comm_, now += 100ms);
  EXPECT_FALSE(activity.calls_are_due());
  EXPECT_FALSE(activity.lively());
}

// Adasum goes over MPI also where all ranks share memory. It hangs if nothing calls MPI afterwards.
TEST_F(MpiMessengerTest, MpiIsCalledAfterABatchWhereAllRanksShareMemory) {
  transport::MpiTransport memory(comm_);
  MpiMessenger messenger(comm_);
  session::CpuTransport transport(&memory, nullptr, &messenger);
  transport.use_memory(memory, {}, /*all=*/true);
  EXPECT_FALSE(transport.must_poll());
  EXPECT_TRUE(messenger.release(messenger.open()));
  EXPECT_TRUE(transport.must_poll());
  while (transport.must_poll()) transport.poll([](int, auto) {});
}

}  // namespace
}  // namespace kolo::internal::messenger
