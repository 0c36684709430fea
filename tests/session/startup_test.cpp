// SPDX-License-Identifier: Apache-2.0
// A rank that fails while a session starts: the others learn of it, and nobody hangs.
#include <dlfcn.h>
#include <fcntl.h>
#include <mpi.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "fixture.hpp"
#include "node/file_descriptor.hpp"

namespace {

std::atomic<int> polls{0};
std::atomic<bool> no_threads{false};
std::function<void()> at_next_allgather;

}  // namespace

// As if this process could have no more threads.
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*body)(void*), void* argument) noexcept {
  static const auto real =
      reinterpret_cast<decltype(&pthread_create)>(::dlsym(RTLD_NEXT, "pthread_create"));
  return no_threads ? EAGAIN : real(thread, attributes, body, argument);
}

// In the middle of a start.
extern "C" int MPI_Allgather(const void* from, int sent, MPI_Datatype sent_type, void* to,
                             int received, MPI_Datatype received_type, MPI_Comm comm) {
  if (const auto call = std::exchange(at_next_allgather, nullptr)) call();
  return PMPI_Allgather(from, sent, sent_type, to, received, received_type, comm);
}

// Where a session receives control messages if MPI carries them. Counted, then done.
extern "C" int MPI_Improbe(int peer, int tag, MPI_Comm comm, int* found, MPI_Message* message,
                           MPI_Status* status) {
  ++polls;
  return PMPI_Improbe(peer, tag, comm, found, message, status);
}

namespace kolo::internal {
namespace {

int highest_descriptor() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  int highest = 2;
  for (int fd = 3; fd < static_cast<int>(std::min<rlim_t>(limit.rlim_cur, 65536)); ++fd)
    if (::fcntl(fd, F_GETFD) >= 0) highest = fd;
  return highest;
}

/// Leaves this process room for only so many descriptors.
class FewDescriptors {
 public:
  explicit FewDescriptors(int spare) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    limit(highest_descriptor());
    for (int fd = ::dup(2); fd >= 0; fd = ::dup(2)) gaps_.emplace_back(fd);
    limit(highest_descriptor() + spare);
  }
  ~FewDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  FewDescriptors(const FewDescriptors&) = delete;
  FewDescriptors& operator=(const FewDescriptors&) = delete;

 private:
  void limit(int highest) const {
    rlimit few = before_;
    few.rlim_cur = static_cast<rlim_t>(highest + 1);
    ::setrlimit(RLIMIT_NOFILE, &few);
  }

  rlimit before_{};
  std::vector<node::FileDescriptor> gaps_{};  // below the highest
};

/// The way of a session's messages, the worst first.
enum Way { none, polled_mpi, sockets, memory };

class Startup : public testing::Test {
 protected:
  Startup() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
  }

  /// The data path of a session, which must work; none if the session does not start. Equal on all
  /// ranks.
  Way start(const SessionOptions& options) const {
    int started = 1;
    int way = none;
    try {
      const Session session(options);
      way = way_of_session();
      int sum = 1;
      allreduce(sum, {.op = ReduceOp::sum});
      EXPECT_EQ(sum, size_);
    } catch (const InvalidArgument& error) {
      started = 0;
      EXPECT_THAT(error.ranks(), testing::Not(testing::IsEmpty())) << error.what();
    }
    int on_all = 0;
    MPI_Allreduce(&started, &on_all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    EXPECT_TRUE(on_all == 0 || on_all == size_) << on_all;
    int worst = 0;
    MPI_Allreduce(&way, &worst, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    return static_cast<Way>(worst);
  }
  bool starts(const SessionOptions& options) const { return start(options) != none; }

  /// With few descriptors on the last rank, then more and more, until the session starts.
  int spare_descriptors_needed(const SessionOptions& options) const {
    for (int spare = 1; spare < 100; ++spare) {
      SCOPED_TRACE(testing::Message() << spare << " spare descriptors");
      const FewDescriptors few(rank_ == size_ - 1 ? spare : 100);
      if (starts(options) || HasFailure()) return spare;
    }
    return 100;
  }

  int rank_ = 0;
  int size_ = 1;

 private:
  /// Before data travels over MPI.
  [[nodiscard]] Way way_of_session() const {
    const int before = polls;
    for (int i = 0; i < 3; ++i) remove_process_set(add_process_set({0}));
    if (polls != before) return polled_mpi;
    return cpu_operations() == "mpi" ? sockets : memory;
  }
};

TEST_F(Startup, ARankWithoutDescriptorsIsNamedOnAll) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "without a descriptor for a pipe, UBSan takes each object for none";
#endif
  (void)starts({});  // what MPI opens at first use
  EXPECT_GT(spare_descriptors_needed({.cpu_operations = "shm"}), 1);
  EXPECT_GT(spare_descriptors_needed({.cpu_operations = "mpi"}), 1);
  EXPECT_TRUE(starts({}));
}

TEST_F(Startup, ARankWithoutAThreadIsNamedOnAll) {
  (void)starts({});  // what MPI starts at first use
  const int last = size_ - 1;
  no_threads = rank_ == last;
  const auto refused = thrown_by<InvalidArgument>([] { init(); });
  no_threads = false;
  EXPECT_THAT(refused.ranks(), testing::ElementsAre(last));
  EXPECT_TRUE(starts({}));
}

TEST_F(Startup, ASecondThreadIsRefusedMeanwhile) {
  at_next_allgather = [] {
    std::thread([] {
      const auto refused = thrown_by<InvalidArgument>([] { init(); });
      EXPECT_THAT(refused.what(), testing::HasSubstr("another thread is starting"));
    }).join();
  };
  EXPECT_TRUE(starts({}));
  EXPECT_EQ(at_next_allgather, nullptr);
}

TEST_F(Startup, MemoryThatFailsLateLeavesTheSockets) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "without a descriptor for a pipe, UBSan takes each object for none";
#endif
  (void)starts({});
  std::vector<Way> ways;  // with more and more descriptors
  for (int spare = 1; spare < 100 && !HasFailure(); ++spare) {
    const FewDescriptors few(rank_ == size_ - 1 ? spare : 100);
    ways.push_back(start({}));
    if (ways.back() == memory) break;
  }
  EXPECT_EQ(ways.back(), memory);
  if (size_ == 1) return;
  EXPECT_THAT(ways, testing::Contains(sockets));
  EXPECT_THAT(ways, testing::Not(testing::Contains(polled_mpi)));
}

TEST_F(Startup, AnInterfaceThatIsNotThereIsRefusedByAnyNumberOfRanks) {
  const auto refused = thrown_by<InvalidArgument>([] { init({.control_interface = "absent0"}); });
  EXPECT_THAT(refused.what(), testing::HasSubstr("control_interface=absent0: names no interface"));
}

TEST_F(Startup, EveryRankNamesTheSettingOfOne) {
  const int last = size_ - 1;
  const auto refused = thrown_by<InvalidArgument>(
      [&] { init({.cpu_operations = rank_ == last ? "carrier pigeons" : "auto"}); });
  EXPECT_THAT(refused.ranks(), testing::ElementsAre(last));
  EXPECT_THAT(refused.what(), testing::HasSubstr("carrier pigeons"));
  EXPECT_TRUE(starts({}));
}

}  // namespace
}  // namespace kolo::internal
