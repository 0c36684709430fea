// SPDX-License-Identifier: Apache-2.0
// The smallest useful program: run it with `mpirun -np 4 ./quickstart`.
#include <kolo/kolo.hpp>

#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

int main(int argc, char** argv) {
  kolo::Session session(argc, argv);  // shuts down at the end of the scope; if an exception ends
                                      // it, the other ranks learn of that

  // In place; computes the mean over all ranks by default.
  std::vector<float> gradient(1 << 20, static_cast<float>(kolo::rank()));
  kolo::allreduce(gradient);

  std::int64_t seen = 100 + kolo::rank();
  kolo::allreduce(seen, {.op = kolo::ReduceOp::sum});

  // Rank 0's value goes to every rank.
  double learning_rate = kolo::rank() == 0 ? 0.1 : 0.0;
  std::string run_name = kolo::rank() == 0 ? "cifar10-baseline" : "";
  kolo::broadcast(learning_rate, /*root=*/0);
  kolo::broadcast(run_name, /*root=*/0);

  // Ranks may contribute different numbers of rows.
  std::vector<std::int32_t> mine(kolo::rank() + 1, kolo::rank());
  const kolo::Gathered<std::int32_t> all = kolo::allgather(mine);  // all.values, all.counts

  // counts[r] elements go to rank r.
  const std::vector<std::int64_t> counts(kolo::size(), 1);
  std::vector<float> parcel(kolo::size(), 1.0F);
  const kolo::Gathered<float> received = kolo::alltoall(parcel, counts);

  const std::vector<float> my_slice = kolo::reducescatter(gradient, {.op = kolo::ReduceOp::sum});

  kolo::barrier();
  if (kolo::rank() == 0) {
    std::cout << kolo::size() << " ranks, " << seen << " seen, run " << run_name << ", "
              << all.values.size() << " gathered, " << received.values.size() << " received, "
              << my_slice.size() << " in my slice\n";
  }
}
