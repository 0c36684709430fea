// What all ranks conclude at the start from what each has told, without MPI.
#include "session/startup/host_record.hpp"

#include <gmock/gmock.h>

#include <string>
#include <vector>

namespace kolo::internal::session {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// Ranks 0 and 1 are of one host, rank 2 is of another. All can share memory.
class HostRecords : public testing::Test {
 protected:
  HostRecords() {
    for (std::size_t rank = 0; rank < 3; ++rank) {
      records_[rank].report = StartupReport::make("1.2", "");
      records_[rank].inbox = 100 + rank;
      records_[rank].lowest_rank_of_host = topology_.node_of[rank];
      reports_[rank] = {StartupReport::make("1.2", ""), StartupReport::make("1.2", ""),
                        StartupReport::make("1.2", "")};
    }
  }

  [[nodiscard]] Verdict verdict() const { return reach_verdict(records_, reports_, topology_); }

  Topology topology_ = make_topology(0, {0, 0, 2});
  std::vector<HostRecord> records_ = std::vector<HostRecord>(3);
  std::vector<SetupReport> reports_ = std::vector<SetupReport>(3);
};

TEST_F(HostRecords, ThatAgreeAreNoErrors) {
  EXPECT_EQ(find_errors(records_).text, "");
  for (const int rank : {0, 1, 2}) EXPECT_EQ(why_no_memory(records_, topology_, rank), "");
}

TEST_F(HostRecords, NameASettingThatDiffers) {
  records_[2].test_ranks_per_host = 4;
  const StartupErrors errors = find_errors(records_);
  EXPECT_THAT(errors.ranks, ElementsAre(2));
  EXPECT_THAT(errors.text, HasSubstr("KOLO_TEST_RANKS_PER_HOST is 4, on rank 0 it is 0"));
}

TEST_F(HostRecords, ARanksOwnProblemComesFirst) {
  records_[2].test_ranks_per_host = 4;
  records_[2].report = StartupReport::make("1.2", "X=7");
  EXPECT_EQ(find_errors(records_).text, "rank 2: X=7");
}

TEST_F(HostRecords, MemoryIsSharedByAllRanksOfAHostOrNone) {
  records_[1].inbox = 0;
  EXPECT_THAT(why_no_memory(records_, topology_, 0), HasSubstr("another rank"));
  EXPECT_EQ(why_no_memory(records_, topology_, 2), "");
  records_[1].cpu_operations = CpuOperations::mpi;
  EXPECT_THAT(why_no_memory(records_, topology_, 0), HasSubstr("does without"));
}

TEST_F(HostRecords, AVerdictWithoutProblems) {
  const Verdict all_well = verdict();
  EXPECT_THAT(all_well.errors.ranks, IsEmpty());
  EXPECT_EQ(all_well.connection_errors.text, "");
  EXPECT_EQ(all_well.no_memory, "");
  EXPECT_TRUE(all_well.all_hosts_share);
}

TEST_F(HostRecords, MemoryThatFailsOnOneRankIsGivenUpOnItsHost) {
  reports_[1].memory = StartupReport::make("1.2", "mmap failed");
  EXPECT_THAT(verdict().no_memory, HasSubstr("another rank"));
  EXPECT_FALSE(verdict().all_hosts_share);
  EXPECT_EQ(verdict().errors.text, "");
  topology_ = make_topology(1, topology_.node_of);
  EXPECT_EQ(verdict().no_memory, "mmap failed");
  topology_ = make_topology(2, topology_.node_of);
  EXPECT_EQ(verdict().no_memory, "");
  EXPECT_FALSE(verdict().all_hosts_share);
}

TEST_F(HostRecords, MemoryThatIsDemandedIsAnErrorOnAll) {
  records_[0].cpu_operations = records_[2].cpu_operations = CpuOperations::shm;
  reports_[1].memory = StartupReport::make("1.2", "mmap failed");
  EXPECT_THAT(verdict().errors.ranks, ElementsAre(0));
  EXPECT_THAT(verdict().errors.text, HasSubstr("cpu_operations is shm"));
}

TEST_F(HostRecords, ConnectionsThatFailAreNoErrors) {
  reports_[2].connections = StartupReport::make("1.2", "cannot reach rank 0");
  EXPECT_EQ(verdict().errors.text, "");
  EXPECT_EQ(verdict().connection_errors.text, "rank 2: cannot reach rank 0");
}

TEST_F(HostRecords, WhatKeepsARankFromStartingIsAnErrorOnAll) {
  reports_[1].start = StartupReport::make("1.2", "no timeline");
  EXPECT_EQ(verdict().errors.text, "rank 1: no timeline");
}

TEST(Topology, CountsRanksOfHosts) {
  const std::vector<int> node_of{0, 1, 0, 1, 0};
  const Topology last = make_topology(4, node_of);
  EXPECT_EQ(last.size, 5);
  EXPECT_EQ(last.local_rank, 2);
  EXPECT_EQ(last.local_size, 3);
  EXPECT_EQ(last.cross_rank, 0);
  EXPECT_EQ(last.cross_size, 1);  // the other host has no third rank
  EXPECT_FALSE(last.homogeneous);
  const Topology other = make_topology(3, node_of);
  EXPECT_EQ(other.local_rank, 1);
  EXPECT_EQ(other.cross_rank, 1);
  EXPECT_EQ(other.cross_size, 2);
  EXPECT_THAT(ranks_of_host(last, 3), ElementsAre(1, 3));
  EXPECT_TRUE(make_topology(0, {0, 0, 2, 2}).homogeneous);
}

}  // namespace
}  // namespace kolo::internal::session
