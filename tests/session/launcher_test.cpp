// SPDX-License-Identifier: Apache-2.0
// The launcher from which a process takes its rank, according to its environment.
#include "session/job/launcher.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>

#include "kolo/error.hpp"
#include "session/job/mpi_environment.hpp"

namespace kolo::internal::session {
namespace {

using testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

std::optional<ServerlessJob> find_with(const Variables& variables) {
  for (const char* const name :
       {"RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "PMIX_RANK",
        "PMI_RANK", "PMI_SIZE", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NUM_NODES",
        "SLURM_STEP_NODELIST", "OMPI_COMM_WORLD_SIZE", "TORCHELASTIC_RUN_ID", "KOLO_LAUNCHER"})
    ::unsetenv(name);
  for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
  return find_serverless_job();
}

/// Variables of the second of two tasks.
const Variables srun{{"SLURM_PROCID", "1"},
                     {"SLURM_STEP_NUM_TASKS", "2"},
                     {"SLURM_STEP_NUM_NODES", "2"},
                     {"SLURM_STEP_NODELIST", "node[1-2]"}};
/// Variables of the fourth of eight workers, with four on each host.
const Variables workers{{"RANK", "3"},
                        {"WORLD_SIZE", "8"},
                        {"LOCAL_WORLD_SIZE", "4"},
                        {"MASTER_ADDR", "node1"},
                        {"MASTER_PORT", "29500"}};

Variables operator+(Variables all, const Variables& more) {
  for (const auto& [name, value] : more) all[name] = value;
  return all;
}

void expect_worker(const std::optional<ServerlessJob>& job) {
  ASSERT_TRUE(job.has_value());
  EXPECT_EQ(job->rank, 3);
  EXPECT_EQ(job->size, 8);
  EXPECT_EQ(job->host, "node1");
}

const Variables torchrun = workers + Variables{{"TORCHELASTIC_RUN_ID", "none"}};

TEST(LauncherVariables, OfTorchrunCountMoreThanThoseOfTheTaskAroundIt) {
  expect_worker(find_with(torchrun));
  expect_worker(find_with(torchrun + srun));
  expect_worker(find_with(torchrun + srun + Variables{{"PMIX_RANK", "1"}}));
  expect_worker(find_with(torchrun + srun + Variables{{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}));
  // One agent for each rank.
  expect_worker(find_with(
      torchrun + srun +
      Variables{{"SLURM_PROCID", "3"}, {"SLURM_STEP_NUM_TASKS", "8"}, {"PMIX_RANK", "3"}}));
}

TEST(LauncherVariables, OfMoreProcessesThanTasksAreNotThoseOfTheTasks) {
  expect_worker(find_with(workers + srun + Variables{{"PMIX_RANK", "1"}}));
  expect_worker(find_with(workers + srun + Variables{{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}));
}

TEST(LauncherVariables, OfMpiCountMoreThanThoseAroundIt) {
  const Variables mpirun{{"OMPI_COMM_WORLD_SIZE", "2"}, {"PMIX_RANK", "1"}};
  EXPECT_FALSE(find_with(torchrun + mpirun).has_value());
  EXPECT_FALSE(find_with(torchrun + srun + mpirun).has_value());
  if (!built_with_mpi()) return;
  // Variables that sbatch scripts set for other libraries, with the same values as those of srun.
  EXPECT_FALSE(
      find_with(workers + srun +
                Variables{{"SLURM_PROCID", "3"}, {"SLURM_STEP_NUM_TASKS", "8"}, {"PMIX_RANK", "3"}})
          .has_value());
  // MPICH's mpirun in a task, or in a pod.
  EXPECT_FALSE(
      find_with(workers + srun + Variables{{"PMI_RANK", "0"}, {"PMI_SIZE", "4"}}).has_value());
  EXPECT_FALSE(find_with(workers + Variables{{"PMI_RANK", "0"}, {"PMI_SIZE", "4"}}).has_value());
  EXPECT_FALSE(find_with(srun + Variables{{"PMIX_RANK", "1"}}).has_value());
}

/// The message; "" if nothing is thrown.
std::string refusal_of(const Variables& variables) {
  try {
    static_cast<void>(find_with(variables));
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "";
}

TEST(LauncherVariables, ThatCannotBeUsedAreNamed) {
  const auto refuses = [](const Variables& all, const std::string& name, const std::string& value) {
    EXPECT_THAT(refusal_of(all + Variables{{name, value}}), HasSubstr(name + "=" + value + ":"));
  };
  EXPECT_EQ(refusal_of(workers), "");
  for (const char* const value : {"x", "-1", "8", "3 ", "3.0"}) refuses(workers, "RANK", value);
  for (const char* const value : {"two", "0", "-2", "8 ", "99999999999"})
    refuses(workers, "WORLD_SIZE", value);
  for (const char* const value : {"0", "abc", "65536"}) {
    refuses(workers, "MASTER_PORT", value);
    refuses(workers, "KOLO_RENDEZVOUS_PORT", value);
    ::unsetenv("KOLO_RENDEZVOUS_PORT");
  }
  refuses(srun, "SLURM_PROCID", "2");
  Variables without_rank = workers;
  without_rank.erase("RANK");
  EXPECT_THAT(refusal_of(without_rank), HasSubstr("but RANK is not"));
  EXPECT_EQ(refusal_of(without_rank + Variables{{"KOLO_LAUNCHER", "none"}}), "");
}

}  // namespace
}  // namespace kolo::internal::session
