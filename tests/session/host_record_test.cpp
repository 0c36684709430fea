// SPDX-License-Identifier: Apache-2.0
// Conclusions that all ranks draw at the start from each rank's record, without MPI.
#include "session/startup/host_record.hpp"

#include <arpa/inet.h>
#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "session/job/mpi_environment.hpp"
#include "session/startup/networks.hpp"

namespace kolo::internal::session {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

transport::SocketAddress make_address(const std::string& ipv4) {
  transport::SocketAddress address{.family = AF_INET, .port = 4711};
  EXPECT_EQ(::inet_pton(AF_INET, ipv4.c_str(), address.bytes.data()), 1);
  return address;
}

/// Ranks 0 and 1 are of one host, rank 2 is of another. All can share memory.
class HostRecords : public testing::Test {
 protected:
  HostRecords() {
    for (std::size_t rank = 0; rank < 3; ++rank) {
      records_[rank].report = StartupReport::make("1.2", "");
      records_[rank].inbox = 100 + rank;
      records_[rank].lowest_rank_of_host = topology_.node_of[rank];
      memory_[rank] = StartupReport::make("1.2", "");
      reports_[rank] = {.start = StartupReport::make("1.2", ""),
                        .data = StartupReport::make("1.2", ""),
                        .connections = StartupReport::make("1.2", "")};
    }
  }

  [[nodiscard]] MemoryVerdict memory() const { return judge_memory(records_, memory_, topology_); }

  /// The rank can be called at the address and at its loopback.
  void listen(std::size_t rank, const std::string& address) {
    records_[rank].addresses = {make_address("127.0.0.1"), make_address(address)};
    records_[rank].address_count = 2;
  }

  Topology topology_ = make_topology(0, {0, 0, 2});
  std::vector<HostRecord> records_ = std::vector<HostRecord>(3);
  std::vector<StartupReport> memory_ = std::vector<StartupReport>(3);
  std::vector<SetupReport> reports_ = std::vector<SetupReport>(3);
};

// Otherwise whoever reads the records knows the secret.
TEST_F(HostRecords, DoNotHoldTheSecretOfTheSession) {
  const transport::Secret job{std::byte{1}};
  records_[0].seed.fill(std::byte{7});
  records_[0].session = 4711;
  const transport::Secret secret = secret_of_session(job, records_);
  EXPECT_NE(secret, records_[0].seed);
  EXPECT_NE(secret, secret_of_session({}, records_)) << "it depends on the job's secret";
  records_[1].seed.fill(std::byte{9});
  EXPECT_EQ(secret, secret_of_session(job, records_)) << "only the seed of rank 0 counts";
  records_[0].seed.front() = std::byte{8};
  EXPECT_NE(secret, secret_of_session(job, records_)) << "each session has its own";
}

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

TEST_F(HostRecords, AllRanksOrNoneEncrypt) {
  records_[1].network = Network::encrypted;
  EXPECT_EQ(find_errors(records_).text, "rank 1: network is encrypted, on rank 0 it is not");
  records_[0].network = records_[1].network;
  EXPECT_EQ(find_errors(records_).text, "rank 2: network is not encrypted, on rank 0 it is");
  records_[2].network = records_[0].network;
  EXPECT_EQ(find_errors(records_).text, "");
}

TEST_F(HostRecords, NameWhatExcludesEncryption) {
  EXPECT_EQ(find_obstacles_to_encryption(records_).text, "");
  records_[1].wants_sockets = false;
  EXPECT_THAT(find_obstacles_to_encryption(records_).text,
              HasSubstr("rank 1: network is encrypted, but control_interface is none"));
  records_[1].wants_sockets = true;
  records_[2].gpu_operations = GpuOperations::nccl;
  EXPECT_THAT(find_obstacles_to_encryption(records_).text,
              HasSubstr("rank 2: network is encrypted, but gpu_operations is nccl"));
}

TEST_F(HostRecords, ARanksOwnProblemComesFirst) {
  records_[2].test_ranks_per_host = 4;
  records_[2].report = StartupReport::make("1.2", "X=7");
  EXPECT_EQ(find_errors(records_).text, "rank 2: X=7");
}

TEST_F(HostRecords, ASettingThatRankZeroCouldNotReadIsNotCompared) {
  for (HostRecord& record : records_) record.test_ranks_per_host = 2;
  records_[0].test_ranks_per_host = 0;
  records_[0].report = StartupReport::make("1.2", "X=7");
  const StartupErrors errors = find_errors(records_);
  EXPECT_THAT(errors.ranks, ElementsAre(0));
  EXPECT_EQ(errors.text, "rank 0: X=7");
}

TEST_F(HostRecords, MemoryIsSharedByAllRanksOfAHostOrNone) {
  records_[1].inbox = 0;
  EXPECT_THAT(why_no_memory(records_, topology_, 0), HasSubstr("another rank"));
  EXPECT_EQ(why_no_memory(records_, topology_, 2), "");
  records_[1].cpu_operations = CpuOperations::mpi;
  EXPECT_THAT(why_no_memory(records_, topology_, 0), HasSubstr("has cpu_operations=mpi"));
}

TEST_F(HostRecords, AVerdictWithoutProblems) {
  const Verdict all_well = reach_verdict(reports_, true);
  EXPECT_THAT(all_well.errors.ranks, IsEmpty());
  EXPECT_EQ(all_well.connection_errors.text, "");
  EXPECT_THAT(memory().errors.ranks, IsEmpty());
  EXPECT_THAT(memory().reasons, Each(""));
  EXPECT_EQ(memory().sharing_node_of(topology_), topology_.node_of);
}

TEST_F(HostRecords, MemoryThatFailsOnOneRankIsGivenUpOnItsHost) {
  memory_[1] = StartupReport::make("1.2", "mmap failed");
  EXPECT_THAT(memory().reasons, ElementsAre(HasSubstr("another rank"), "mmap failed", ""));
  EXPECT_FALSE(memory().shared_by(0));
  EXPECT_TRUE(memory().shared_by(2));
  EXPECT_THAT(memory().sharing_node_of(topology_), ElementsAre(0, 1, 2));
  EXPECT_EQ(memory().errors.text, "");
}

TEST_F(HostRecords, MemoryThatIsDemandedIsAnErrorOnAll) {
  records_[0].cpu_operations = records_[2].cpu_operations = CpuOperations::shm;
  memory_[1] = StartupReport::make("1.2", "mmap failed");
  EXPECT_THAT(memory().errors.ranks, ElementsAre(0));
  EXPECT_THAT(memory().errors.text, HasSubstr("cpu_operations is shm"));
}

TEST_F(HostRecords, SettingsThatNeedMpiAreRefusedWithoutIt) {
  EXPECT_THAT(find_needs_of_mpi(records_, true).ranks, IsEmpty());
  records_[1].cpu_operations = CpuOperations::mpi;
  EXPECT_THAT(find_needs_of_mpi(records_, false).text,
              StartsWith(built_with_mpi() ? "rank 1: cpu_operations is mpi, but the program was "
                                            "started without MPI: start it with mpirun"
                                          : "rank 1: cpu_operations is mpi, but this build of Kolo "
                                            "is without MPI"));
  records_[2].wants_sockets = false;
  EXPECT_THAT(find_needs_of_mpi(records_, false).ranks, ElementsAre(1));
  EXPECT_THAT(find_needs_of_mpi(records_, true).ranks, ElementsAre(1, 2));
  EXPECT_THAT(find_needs_of_mpi(records_, true).text, HasSubstr("control_interface is none"));
  // Only rank 0's value counts.
  records_[2].network = Network::mpi;
  EXPECT_THAT(find_needs_of_mpi(records_, false).ranks, ElementsAre(1));
  records_[0].network = Network::mpi;
  EXPECT_THAT(find_needs_of_mpi(records_, false).ranks, ElementsAre(0, 1, 2));
}

TEST_F(HostRecords, ConnectionsOfKoloCarryDataWithoutMpiOrOnRequest) {
  EXPECT_TRUE(needs_data_connections(Network::automatic, /*has_mpi=*/false));
  EXPECT_FALSE(needs_data_connections(Network::automatic, /*has_mpi=*/true));
  EXPECT_TRUE(needs_data_connections(Network::sockets, /*has_mpi=*/true));
  EXPECT_TRUE(needs_data_connections(Network::encrypted, /*has_mpi=*/true));
  EXPECT_TRUE(needs_data_connections(Network::fabric, /*has_mpi=*/true));
  EXPECT_FALSE(needs_data_connections(Network::mpi, /*has_mpi=*/true));
}

TEST_F(HostRecords, SocketsReachTheParentsThatMemoryDoesNot) {
  EXPECT_THAT(find_unreachable_parents(records_, topology_, memory()),
              ElementsAre("", "", HasSubstr("cannot reach rank 0")));
  listen(0, "10.0.0.1");
  EXPECT_THAT(find_unreachable_parents(records_, topology_, memory()), Each(""));
  memory_[1] = StartupReport::make("1.2", "pidfd_open failed");
  EXPECT_THAT(find_unreachable_parents(records_, topology_, memory()), Each(""));
  records_[0].address_count = 1;
  EXPECT_THAT(find_unreachable_parents(records_, topology_, memory()),
              ElementsAre("", HasSubstr("cannot reach rank 0"), HasSubstr("cannot reach rank 0")));
  for (HostRecord& record : records_) record.machine = 5;
  EXPECT_THAT(find_unreachable_parents(records_, topology_, memory()), Each(""));
}

TEST_F(HostRecords, NoRankTriesToConnectIfOneIsUnreachable) {
  memory_[1] = StartupReport::make("1.2", "pidfd_open failed");
  for (const std::size_t rank : {0U, 1U}) records_[rank].machine = 5;
  listen(0, "127.0.0.2");
  const transport::Listeners listeners({});
  const auto wait = [] { ADD_FAILURE() << "waits"; };
  EXPECT_EQ(connect_hosts(topology_, records_, memory(), {}, listeners, wait).problem, "");
  topology_ = make_topology(2, topology_.node_of);
  EXPECT_THAT(connect_hosts(topology_, records_, memory(), {}, listeners, wait).problem,
              HasSubstr("cannot reach rank 0"));
}

TEST(FindAddresses, LoopbackAloneIsEnoughForRanksThatShareIt) {
  const std::vector<transport::Interface> all{{"lo", make_address("127.0.0.1")},
                                              {"eth0", make_address("10.0.0.1")}};
  EXPECT_THAT(find_addresses(all, {}, /*loopback_is_enough=*/true), ElementsAre(all[0].address));
  EXPECT_THAT(find_addresses(all, {}, /*loopback_is_enough=*/false),
              ElementsAre(all[0].address, all[1].address));
  EXPECT_THAT(find_addresses(all, {.value = "eth0"}, /*loopback_is_enough=*/true),
              ElementsAre(all[1].address));
}

TEST_F(HostRecords, ConnectionsThatFailAreNoErrors) {
  reports_[2].connections = StartupReport::make("1.2", "cannot reach rank 0");
  EXPECT_EQ(reach_verdict(reports_, true).errors.text, "");
  EXPECT_EQ(reach_verdict(reports_, true).connection_errors.text, "rank 2: cannot reach rank 0");
}

TEST_F(HostRecords, WithoutMpiTheRankThatCannotBeReachedIsToBlame) {
  reports_[0].connections = StartupReport::make("1.2", "received no connection from rank 2");
  reports_[0].without_connection = MissingRanks::of(std::vector{2});
  reports_[2].connections = StartupReport::make("1.2", "cannot reach rank 0");
  reports_[2].without_connection = MissingRanks::of(std::vector{0});
  const Verdict verdict = reach_verdict(reports_, false);
  EXPECT_THAT(verdict.errors.ranks, ElementsAre(2));
  EXPECT_EQ(verdict.errors.text,
            "rank 2 cannot be reached: rank 0: received no connection from rank 2; rank 2: cannot "
            "reach rank 0");
  EXPECT_EQ(verdict.connection_errors.text, "");
}

TEST_F(HostRecords, ConnectionsForDataShowBestWhoIsMissing) {
  // Rank 1 calls nobody in the tree, but has no connection for data with anybody.
  reports_[0].without_connection = MissingRanks::of(std::vector{2});
  reports_[0].without_data = reports_[2].without_data = MissingRanks::of(std::vector{1});
  reports_[1].without_data = MissingRanks::of(std::vector{0, 2});
  EXPECT_THAT(reach_verdict(reports_, false).errors.ranks, ElementsAre(1));
}

TEST_F(HostRecords, WhatKeepsARankFromStartingIsAnErrorOnAll) {
  reports_[1].start = StartupReport::make("1.2", "no timeline");
  reports_[0].without_data = MissingRanks::of(std::vector{2});
  EXPECT_EQ(reach_verdict(reports_, true).errors.text, "rank 1: no timeline");
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
