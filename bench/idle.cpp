// SPDX-License-Identifier: Apache-2.0
// The processor time of a waiting rank. After some traffic the ranks wait for SECONDS (default 10),
// without operations or, with `in-allreduce`, in an allreduce that rank 0 calls at the end. Prints
// the share of one core that each rank used, over all its threads. Usage: mpirun -np N bench-idle
// [SECONDS [in-allreduce]]
#include <kolo/kolo.hpp>

#include <unistd.h>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

/// User and system time of all threads of this process, in seconds: fields 14 and 15 of
/// /proc/self/stat. The second field, the name in parentheses, may hold spaces.
double cpu_seconds() {
  std::ifstream file("/proc/self/stat");
  const std::string line((std::istreambuf_iterator<char>(file)), {});
  std::istringstream fields(line.substr(line.rfind(')') + 1));
  std::string skipped;
  for (int i = 3; i < 14; ++i) fields >> skipped;
  double user = 0.0;
  double system = 0.0;
  if (!(fields >> user >> system)) throw std::runtime_error("cannot read /proc/self/stat");
  return (user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

}  // namespace

int main(int argc, char** argv) {
  const kolo::Session session(argc, argv);
  const double seconds = argc > 1 ? std::atof(argv[1]) : 10.0;
  std::vector<float> tensor(1 << 20, 1.0F);
  for (int i = 0; i < 100; ++i) kolo::allreduce(tensor, {.name = "traffic"});
  kolo::barrier();

  const double before = cpu_seconds();
  const bool waits_inside = argc > 2 && std::string(argv[2]) == "in-allreduce" && kolo::rank() > 0;
  if (!waits_inside) std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  if (argc > 2) kolo::allreduce(tensor, {.name = "traffic"});
  std::vector<double> shares(static_cast<std::size_t>(kolo::size()));
  shares[static_cast<std::size_t>(kolo::rank())] = (cpu_seconds() - before) / seconds;

  kolo::allreduce(shares, {.op = kolo::ReduceOp::sum});
  if (kolo::rank() == 0)
    for (std::size_t rank = 0; rank < shares.size(); ++rank)
      std::printf("rank %zu: %.3f %% of a core\n", rank, 100.0 * shares[rank]);
}
