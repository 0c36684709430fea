// SPDX-License-Identifier: Apache-2.0
// Ends this process if MPI_Init would wait forever. Only in builds with MPI.
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

namespace kolo::internal::session {

/// The nearest ancestor of this process that is Open MPI's launcher on this host.
[[nodiscard]] std::optional<pid_t> find_launcher();
/// The number of its children that have not ended; nothing if the system does not tell.
[[nodiscard]] std::optional<int> count_children(pid_t process);

/// Exists while MPI_Init waits for all processes of the job. A process that ends before it calls
/// MPI_Init is waited for, too: Open MPI ends the job only if its status is not 0. So a thread
/// counts the processes that the launcher has on this host. If some are missing, it ends this
/// process with an error, and so the job.
class StartWatch {
 public:
  StartWatch();
  ~StartWatch();
  StartWatch(const StartWatch&) = delete;
  StartWatch& operator=(const StartWatch&) = delete;

 private:
  void watch(pid_t launcher, int processes);

  std::mutex mutex_;
  std::condition_variable over_;
  bool is_over_ = false;
  std::thread thread_{};
};

}  // namespace kolo::internal::session
