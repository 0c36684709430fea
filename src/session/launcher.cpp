// SPDX-License-Identifier: Apache-2.0
#include "session/launcher.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cstdlib>
#include <string>
#include <string_view>
#include <system_error>

#include "kolo/error.hpp"

namespace kolo::internal::session {
namespace {

constexpr const char* choice_variable = "KOLO_LAUNCHER";

/// The variables by which a launcher tells a process its rank and the number of processes.
struct Launcher {
  const char* rank;
  const char* size;
  bool knows_mpi;      // MPI takes the number from it: 1 is no failure of MPI's
  bool may_enclose;    // one that knows MPI may have been started in it
  const char* remedy;  // what to do if MPI does not see the others
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

/// 0 if the variable has no number.
int number_in(const char* variable) {
  const std::string_view text = text_in(variable);
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? number : 0;
}

/// False: MPI alone decides.
bool looks_for_launchers() {
  const std::string_view choice = text_in(choice_variable);
  if (choice.empty() || choice == "auto") return true;
  if (choice == "mpi") return false;
  throw InvalidArgument(fmt::format("{}={}: must be auto or mpi", choice_variable, choice));
}

}  // namespace

bool started_by_kolorun() { return looks_for_launchers() && !text_in("KOLO_RENDEZVOUS").empty(); }

void require_all_processes(int mpi_processes) {
  if (!looks_for_launchers() || mpi_processes > 1) return;
  bool mpi_is_right = false;
  for (const Launcher& launcher : launchers) {
    if (text_in(launcher.rank).empty()) continue;
    const int size = number_in(launcher.size);
    if (launcher.knows_mpi && size == 1) mpi_is_right = true;
    if (size < 2 || (launcher.may_enclose && mpi_is_right)) continue;
    throw InvalidArgument(fmt::format(
        "the launcher has started {} processes ({}={}, {}={}), but MPI sees this one alone: {}. If "
        "each process is to train by itself, set {}=mpi",
        size, launcher.rank, text_in(launcher.rank), launcher.size, text_in(launcher.size),
        launcher.remedy, choice_variable));
  }
}

}  // namespace kolo::internal::session
