// SPDX-License-Identifier: Apache-2.0
// The messenger under test has data connections; each rank is a thread.
#include "data_world.hpp"
#include "network.hpp"

namespace kolo::internal::messenger {

void on_each_rank(const std::function<void(Messenger&)>& body) {
  for (const int ranks : {1, 2, 3, 5}) {
    SCOPED_TRACE(testing::Message() << ranks << " ranks");
    DataWorld world(ranks);
    for (const std::string& problem : world.connect()) ASSERT_EQ(problem, "");
    std::vector<std::thread> threads;
    for (std::unique_ptr<Messenger>& messenger : world.all())
      threads.emplace_back([&] {
        body(*messenger);
        messenger->close(std::chrono::seconds(10));
        EXPECT_EQ(messenger->loss(), nullptr);
      });
    for (std::thread& thread : threads) thread.join();
  }
}

}  // namespace kolo::internal::messenger
