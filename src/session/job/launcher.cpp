// SPDX-License-Identifier: Apache-2.0
#include "session/job/launcher.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "kolo/error.hpp"
#include "session/job/mpi_environment.hpp"

namespace kolo::internal::session {
namespace {

constexpr const char* choice_variable = "KOLO_LAUNCHER";
constexpr int max_processes = 1 << 16;

/// The variables by which a launcher tells a process its rank and the number of processes.
struct Launcher {
  const char* rank;
  const char* size;
  bool knows_mpi;      // MPI reads its size from these variables, so a size of 1 is correct
  bool may_enclose;    // it may contain another launcher, one that knows MPI
  const char* remedy;  // what to do if MPI does not see the other processes
};

constexpr const char* other_library =
    "start it with the mpirun of the MPI library that Kolo was built with";

constexpr std::array launchers{
    Launcher{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", true, false, other_library},
    Launcher{"PMI_RANK", "PMI_SIZE", true, false, other_library},
    Launcher{"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", false, true,
             "start it with mpirun, or with srun --mpi=pmix if Slurm and MPI are built with the "
             "same PMIx"},
    Launcher{"RANK", "WORLD_SIZE", false, false, "start it with kolorun or mpirun"},
};

std::string_view text_in(const char* variable) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? "" : text;
}

/// The number in the variable; 0 if it holds none.
int number_in(const char* variable) {
  const std::string_view text = text_in(variable);
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? number : 0;
}

/// The number in the variable. Throws InvalidArgument, which names the variable, unless the number
/// is from `min` to `max`.
int checked_number_in(const char* variable, int min, int max) {
  const std::string_view text = text_in(variable);
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < min || number > max)
    throw InvalidArgument(
        fmt::format("the launcher's variable {}={}: must be a number from {} to {}. If it is not "
                    "meant for this "
                    "program, set {}=none",
                    variable, text, min, max, choice_variable));
  return number;
}

/// False if KOLO_LAUNCHER says that MPI alone decides, or that each process is alone.
bool looks_for_launchers() {
  const std::string_view choice = text_in(choice_variable);
  if (choice.empty() || choice == "auto") return true;
  if (choice == "mpi" && !built_with_mpi())
    throw InvalidArgument(
        fmt::format("{}=mpi, but this build of Kolo is without MPI", choice_variable));
  if (choice == "mpi" || choice == "none") return false;
  throw InvalidArgument(fmt::format("{}={}: must be auto, mpi or none", choice_variable, choice));
}

/// True if torchrun or a similar launcher has started this process within a task of srun. The
/// variables for MPI (--mpi=pmix or pmi2) then describe the task, and all of its processes inherit
/// them, so they must be ignored. The result is the same in each process of the job.
bool is_within_task() {
  if (text_in("RANK").empty() || text_in("WORLD_SIZE").empty()) return false;
  if (!text_in("TORCHELASTIC_RUN_ID").empty()) return true;
  const std::string_view task = text_in("SLURM_PROCID");
  const bool is_of_task =
      !task.empty() &&
      (text_in("PMIX_RANK") == task ||
       (text_in("PMI_RANK") == task && text_in("PMI_SIZE") == text_in("SLURM_STEP_NUM_TASKS")));
  return is_of_task && number_in("WORLD_SIZE") > number_in("SLURM_STEP_NUM_TASKS");
}

/// True if a launcher has told MPI in this process about the other processes. In a build without
/// MPI, srun's preparation for MPI does not count.
bool is_known_to_mpi() {
  if (!text_in("OMPI_COMM_WORLD_SIZE").empty()) return true;
  if (is_within_task()) return false;
  if (!built_with_mpi() &&
      (text_in("PMI_RANK").empty() || (text_in("PMI_RANK") == text_in("SLURM_PROCID") &&
                                       text_in("PMI_SIZE") == text_in("SLURM_STEP_NUM_TASKS"))))
    return false;
  return !text_in("PMIX_RANK").empty() || !text_in("PMI_RANK").empty();
}

/// The port of the server. Under torchrun it is next to torchrun's own port; under Slurm it depends
/// on the job and step, so that steps on the same host do not collide.
std::uint16_t find_port() {
  for (const auto& [variable, offset] :
       {std::pair("KOLO_RENDEZVOUS_PORT", 0), {"MASTER_PORT", 1}}) {
    if (text_in(variable).empty()) continue;
    const int port = checked_number_in(variable, 1, 65535);
    return static_cast<std::uint16_t>(port + offset < 65536 ? port + offset : port - offset);
  }
  const auto job = static_cast<unsigned>(number_in("SLURM_JOB_ID"));
  const auto step = static_cast<unsigned>(number_in("SLURM_STEP_ID"));
  return static_cast<std::uint16_t>(20000 + (job * 31 + step) % 10000);
}

/// The first name in a list such as rack1-node[07-12,15]-ib,other3.
std::string first_host(std::string_view list) {
  std::string name;
  while (!list.empty() && list.front() != ',') {
    const std::size_t plain = std::min(list.find_first_of("[,"), list.size());
    name += list.substr(0, plain);
    list.remove_prefix(plain);
    if (list.empty() || list.front() != '[') continue;
    name += list.substr(1, list.find_first_of("-,]") - 1);
    list.remove_prefix(std::min(list.find(']'), list.size() - 1) + 1);
  }
  return name;
}

/// The host of rank 0; empty if it is not known.
std::string find_server(bool by_srun, int size) {
  const bool has_one_host =
      by_srun ? number_in("SLURM_STEP_NUM_NODES") == 1 : number_in("LOCAL_WORLD_SIZE") == size;
  if (has_one_host) return "127.0.0.1";
  if (const std::string_view host = text_in("MASTER_ADDR"); !host.empty()) return std::string(host);
  return by_srun ? first_host(text_in("SLURM_STEP_NODELIST")) : std::string();
}

}  // namespace

bool started_by_kolorun() { return looks_for_launchers() && !text_in("KOLO_RENDEZVOUS").empty(); }

std::optional<ServerlessJob> find_serverless_job() {
  if (!looks_for_launchers() || is_known_to_mpi()) return std::nullopt;
  const bool by_srun = text_in("RANK").empty() || text_in("WORLD_SIZE").empty();
  const char* const rank_variable = by_srun ? "SLURM_PROCID" : "RANK";
  const char* const size_variable = by_srun ? "SLURM_STEP_NUM_TASKS" : "WORLD_SIZE";
  if (text_in(rank_variable).empty() || text_in(size_variable).empty()) {
    // This is an error, because each process would otherwise silently train by itself.
    if (by_srun && text_in(rank_variable).empty() && text_in("RANK").empty() &&
        number_in("WORLD_SIZE") > 1 && !text_in("MASTER_ADDR").empty())
      throw InvalidArgument(
          fmt::format("the launcher's variables WORLD_SIZE={} and MASTER_ADDR are set, but RANK is "
                      "not. If each process is to train by itself, set {}=none",
                      text_in("WORLD_SIZE"), choice_variable));
    return std::nullopt;
  }
  const int size = checked_number_in(size_variable, 1, max_processes);
  const int rank = checked_number_in(rank_variable, 0, size - 1);
  std::string server = find_server(by_srun, size);
  if (size < 2 || server.empty()) return std::nullopt;
  return ServerlessJob{rank, size, std::move(server), find_port()};
}

void require_all_processes(int mpi_processes) {
  if (!looks_for_launchers() || mpi_processes > 1) return;
  bool mpi_is_right = false;
  for (const Launcher& launcher : launchers) {
    if (text_in(launcher.rank).empty()) continue;
    const int size = number_in(launcher.size);
    if (launcher.knows_mpi && size == 1) mpi_is_right = true;
    if (size < 2 || (launcher.may_enclose && mpi_is_right)) continue;
    throw InvalidArgument(fmt::format(
        "the launcher has started {} processes ({}={}, {}={}), but {}. If each process is to train "
        "by itself, set {}={}",
        size, launcher.rank, text_in(launcher.rank), launcher.size, text_in(launcher.size),
        built_with_mpi() ? fmt::format("MPI sees only this one: {}", launcher.remedy)
                         : "this build of Kolo is without MPI: start it with kolorun",
        choice_variable, built_with_mpi() ? "mpi" : "none"));
  }
}

bool is_single_process() {
  if (text_in(choice_variable) == "none") return true;
  if (built_with_mpi()) return false;
  require_all_processes(1);
  return true;
}

}  // namespace kolo::internal::session
