// SPDX-License-Identifier: Apache-2.0
// The main function of tests on several ranks: a failure on any rank fails the whole run. Under
// mpirun, it initializes MPI before the first session and finalizes MPI after the last. Under
// kolorun, and in a build without MPI, it does not call MPI.
#include <gtest/gtest.h>

#include <iostream>
#include <sstream>
#include <string>

#include "world.hpp"

namespace {

using kolo::internal::with_mpi;
using kolo::internal::world_rank;

// Prints failures only, each with its rank.
class FailurePrinter : public testing::EmptyTestEventListener {
 public:
  explicit FailurePrinter(int rank) : rank_(rank) {}

 private:
  // Stored here, because querying GoogleTest from within OnTestPartResult deadlocks.
  void OnTestStart(const testing::TestInfo& test) override {
    test_ = std::string(test.test_suite_name()) + '.' + test.name() + ' ';
  }
  void OnTestEnd(const testing::TestInfo& /*test*/) override { test_.clear(); }

  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed()) return;
    std::ostringstream text;  // Written at once, so that ranks do not mix within a message.
    text << '[' << rank_ << "] " << test_
         << (result.file_name() != nullptr ? result.file_name() : "?") << ':'
         << result.line_number() << ": " << result.message() << '\n';
    std::cerr << text.str() << std::flush;
  }

  std::string test_;
  int rank_;
};

#ifdef KOLO_TEST_MPI
void start_mpi(int argc, char** argv) {
  int provided = MPI_THREAD_SINGLE;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  if (provided >= MPI_THREAD_MULTIPLE) return;
  std::cerr << "This MPI library gives no MPI_THREAD_MULTIPLE.\n";
  MPI_Abort(MPI_COMM_WORLD, 1);
}

/// Rank 0 says so if a test has failed on any rank. The result is the same on all ranks.
int end_mpi(int failed) {
  MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  if (world_rank() == 0 && failed != 0) std::cerr << "A test failed on at least one rank.\n";
  MPI_Finalize();
  return failed;
}
#else
void start_mpi(int /*argc*/, char** /*argv*/) {}
int end_mpi(int failed) { return failed; }
#endif

}  // namespace

int main(int argc, char** argv) {
  if (with_mpi()) start_mpi(argc, argv);
  testing::InitGoogleTest(&argc, argv);

  const int rank = world_rank();
  if (rank != 0) {
    auto& listeners = testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new FailurePrinter(rank));  // GoogleTest owns it.
  }

  const int failed = RUN_ALL_TESTS() == 0 ? 0 : 1;
  return with_mpi() ? end_mpi(failed) : failed;
}
