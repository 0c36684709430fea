// A rank that fails while a session starts: the others learn of it, and nobody hangs.
#include <fcntl.h>
#include <mpi.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "fixture.hpp"
#include "node/file_descriptor.hpp"

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

class Startup : public testing::Test {
 protected:
  Startup() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
  }

  /// Whether a session starts, which is the same on all ranks; if it does it works.
  bool starts(const SessionOptions& options) const {
    int started = 1;
    try {
      const Session session(options);
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
    return on_all == size_;
  }

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
};

TEST_F(Startup, ARankWithoutDescriptorsIsNamedOnAll) {
  (void)starts({});  // what MPI opens at first use
  EXPECT_GT(spare_descriptors_needed({.cpu_operations = "shm"}), 1);
  EXPECT_GT(spare_descriptors_needed({.cpu_operations = "mpi"}), 1);
  EXPECT_TRUE(starts({}));
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
