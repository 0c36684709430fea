// SPDX-License-Identifier: Apache-2.0
// All ranks allocate shared memory at once, and the control group has too little for all of them.
// Ranks that get none throw an exception that names the limit, and the session continues.
//
//     mpirun -np N small_group_program MIB...

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "kolo/kolo.hpp"

namespace {

/// 1 if there was no memory for it.
int allocate(std::optional<kolo::SharedVector<float>>& gradients, std::size_t mib) {
  try {
    gradients.emplace(mib << 18, 1.0F);
    return 0;
  } catch (const kolo::BackendError& error) {
    std::printf("rank %d: %s\n", kolo::rank(), error.what());
    const std::string_view text = error.what();
    return text.find("bytes are available, as /sys/fs/cgroup") != text.npos ? 1 : -1000;
  }
}

}  // namespace

int main(int argc, char** argv) {
  const kolo::Session session;
  for (int argument = 1; argument < argc; ++argument)
    for (int attempt = 0; attempt < 3; ++attempt) {
      kolo::barrier();
      std::optional<kolo::SharedVector<float>> gradients;
      int refused = allocate(gradients, static_cast<std::size_t>(std::atoi(argv[argument])));
      kolo::allreduce(refused, {.op = kolo::ReduceOp::sum});
      if (refused < 1 || refused >= kolo::size()) {
        std::printf("of %d ranks %d were refused %s MiB\n", kolo::size(), refused, argv[argument]);
        return 1;
      }
    }
  kolo::SharedVector<float> small(1000, 1.0F);
  kolo::allreduce(small, {.op = kolo::ReduceOp::sum});
  return small.front() == static_cast<float>(kolo::size()) ? 0 : 1;
}
