// SPDX-License-Identifier: Apache-2.0
// Recorded environments of batch jobs stand for Slurm, PBS and LSF.
#include "kolorun/hosts/allocation.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "kolorun/hosts/remote_shell.hpp"
#include "kolorun/hosts/slurm_lists.hpp"
#include "kolorun/options.hpp"
#include "transport/machine.hpp"

namespace kolorun {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

std::optional<Allocation> find_with(const Variables& variables) {
  for (const char* const name :
       {"SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_TASKS_PER_NODE", "SLURM_JOB_CPUS_PER_NODE",
        "SLURM_CPUS_PER_TASK", "SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID",
        "SLURM_HET_SIZE", "SLURMD_NODENAME", "PBS_JOBID", "PBS_NODEFILE", "LSB_JOBID",
        "LSB_DJOB_HOSTFILE", "LSB_MCPU_HOSTS"})
    ::unsetenv(name);
  for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
  return find_allocation();
}

Variables operator+(Variables all, const Variables& more) {
  for (const auto& [name, value] : more) all[name] = value;
  return all;
}

std::string refusal_of(const Variables& variables) {
  try {
    static_cast<void>(find_with(variables));
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

/// The script of `sbatch --nodes=3 --ntasks=11`.
const Variables sbatch{{"SLURM_JOB_ID", "4711"},
                       {"SLURM_JOB_NODELIST", "n[08-10]"},
                       {"SLURM_TASKS_PER_NODE", "4(x2),3"},
                       {"SLURM_JOB_CPUS_PER_NODE", "8(x2),6"},
                       {"SLURM_PROCID", "0"},
                       {"SLURMD_NODENAME", "n08"}};

TEST(Allocation, IsThatOfSlurm) {
  const auto found = find_with(sbatch);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->name, "Slurm's job 4711");
  EXPECT_THAT(found->hosts,
              ElementsAre(Host{transport::host_name(), 4}, Host{"n09", 4}, Host{"n10", 3}));
  EXPECT_EQ(found->rsh.front(), "srun");
}

// Slurm always sets the number of tasks, except for some site's wrappers of sbatch.
TEST(Allocation, OfSlurmWithoutTasksHasATaskForEachShareOfTheProcessors) {
  Variables variables = sbatch + Variables{{"SLURM_CPUS_PER_TASK", "2"}};
  variables.erase("SLURM_TASKS_PER_NODE");
  const auto found = find_with(variables);
  ASSERT_TRUE(found.has_value());
  EXPECT_THAT(found->hosts,
              ElementsAre(Host{transport::host_name(), 4}, Host{"n09", 4}, Host{"n10", 3}));
}

TEST(Allocation, IsNotThatOfAStepWithOneTask) {
  const Variables step{{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}};
  EXPECT_FALSE(find_with(sbatch + step + Variables{{"SLURM_TASKS_PER_NODE", "1"}}).has_value());
  // The step of the shell of salloc has the variables of the job.
  EXPECT_TRUE(find_with(sbatch + step + Variables{{"SLURM_STEP_ID", "4294967290"}}).has_value());
}

TEST(Allocation, IsRefusedToSeveralKolorun) {
  const Variables step{{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "8"}};
  EXPECT_THAT(refusal_of(sbatch + step),
              HasSubstr("srun has started kolorun 8 times in Slurm's job 4711"));
  EXPECT_THAT(refusal_of(sbatch + Variables{{"SLURM_PROCID", "2"}}),
              HasSubstr("srun has started kolorun 3 times"));
}

TEST(Allocation, ThatCannotBeUsedIsNamed) {
  EXPECT_THAT(refusal_of(sbatch + Variables{{"SLURM_TASKS_PER_NODE", "4"}}),
              HasSubstr("Slurm's job 4711 has 3 nodes (n[08-10]), but numbers of tasks for 1"));
  EXPECT_THAT(refusal_of(sbatch + Variables{{"SLURM_JOB_NODELIST", "n[08"}}),
              HasSubstr("'n[08' is not a list of Slurm's nodes"));
  EXPECT_THAT(refusal_of(sbatch + Variables{{"SLURM_HET_SIZE", "2"}}), HasSubstr("heterogeneous"));
  EXPECT_THAT(refusal_of({{"PBS_JOBID", "7.server"}, {"PBS_NODEFILE", "/absent"}}),
              HasSubstr("the list of hosts of PBS's job 7.server, '/absent', cannot be read"));
}

class AllocationFile : public testing::Test {
 protected:
  ~AllocationFile() override { std::filesystem::remove(path_); }

  std::string write(const std::string& text) const {
    std::ofstream(path_) << text;
    return path_.string();
  }
  std::filesystem::path path_ =
      std::filesystem::temp_directory_path() / ("allocation." + std::to_string(::getpid()));
};

TEST_F(AllocationFile, OfPbs) {
  const std::string own = transport::host_name();
  const auto found =
      find_with({{"PBS_JOBID", "7.server"},
                 {"PBS_NODEFILE", write(own + ".example.org\nb\nb\n" + own + "\n")}});
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->name, "PBS's job 7.server");
  EXPECT_THAT(found->hosts, ElementsAre(Host{own, 2}, Host{"b", 2}));
  EXPECT_TRUE(found->rsh.empty());
}

TEST_F(AllocationFile, OfLsf) {
  const Variables job{{"LSB_JOBID", "99"}, {"LSB_MCPU_HOSTS", "a 4 b 2"}};
  auto found = find_with(job);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->name, "LSF's job 99");
  EXPECT_THAT(found->hosts, ElementsAre(Host{"a", 4}, Host{"b", 2}));
  EXPECT_THAT(found->rsh, ElementsAre("blaunch"));
  found = find_with(job + Variables{{"LSB_DJOB_HOSTFILE", write("c\nc\nd\n")}});
  ASSERT_TRUE(found.has_value());
  EXPECT_THAT(found->hosts, ElementsAre(Host{"c", 2}, Host{"d", 1}));
}

TEST(Allocation, IsNoneOutsideOfJobs) {
  EXPECT_FALSE(find_with({}).has_value());
  // What remains of a submission.
  EXPECT_FALSE(find_with({{"PBS_NODEFILE", "/absent"}, {"LSB_MCPU_HOSTS", "a 4"}}).has_value());
}

TEST(SlurmLists, AreExpanded) {
  EXPECT_THAT(expand_nodes("m2"), ElementsAre("m2"));
  EXPECT_THAT(expand_nodes("n[01-03,7],m2"), ElementsAre("n01", "n02", "n03", "n7", "m2"));
  EXPECT_THAT(expand_nodes("n[098-101]"), ElementsAre("n098", "n099", "n100", "n101"));
  EXPECT_THAT(expand_nodes("n[9-11]"), ElementsAre("n9", "n10", "n11"));
  EXPECT_THAT(expand_nodes("r[1-2]n[3,5]-ib"),
              ElementsAre("r1n3-ib", "r1n5-ib", "r2n3-ib", "r2n5-ib"));
  EXPECT_THAT(expand_counts("4(x2),3"), ElementsAre(4, 4, 3));
  EXPECT_THAT(expand_counts("1"), ElementsAre(1));
  EXPECT_THAT(expand_counts(""), ElementsAre());
}

TEST(SlurmLists, ThatAreNoneAreRefused) {
  for (const char* const list : {"n[1-2", "n1]", "n[]", "n[2-1]", "n[a-b]", "n[1-]", "n[-1]", ",n1",
                                 "n[1-999999999]", "n[1-60000][1-60000]", "n[99999999999]"})
    EXPECT_THROW(static_cast<void>(expand_nodes(list)), UsageError) << list;
  for (const char* const list : {"x", "4(x", "4(x)", "4(xa)", "-1", "4(x999999999)", ",4"})
    EXPECT_THROW(static_cast<void>(expand_counts(list)), UsageError) << list;
}

TEST(RemoteShell, NamesTheHost) {
  EXPECT_THAT(agent_command({"rsh", "-p"}, "b", "/bin/kolorun"),
              ElementsAre("rsh", "-p", "b", "'/bin/kolorun' --agent"));
  EXPECT_THAT(agent_command({"/usr/bin/srun", "-q"}, "b", "/a b/kolorun"),
              ElementsAre("/usr/bin/srun", "-q", "--nodelist=b", "/a b/kolorun", "--agent"));
}

// What they pass on may name the computer from which the user has logged in.
TEST(RemoteShell, OfBatchSystemsPassesTheEnvironmentOn) {
  EXPECT_TRUE(passes_environment({"srun"}));
  EXPECT_TRUE(passes_environment({"/opt/lsf/bin/blaunch"}));
  EXPECT_FALSE(passes_environment({"ssh"}));
}

}  // namespace
}  // namespace kolorun
