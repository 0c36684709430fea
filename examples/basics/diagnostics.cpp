// SPDX-License-Identifier: Apache-2.0
// The records of a session: a timeline of ten steps, a flight record, and statistics. The files go
// to the directory given as the argument. Run as: mpirun -np 2 diagnostics DIRECTORY
#include <kolo/kolo.hpp>

#include <exception>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

void run(int argc, char** argv) {
  const std::string directory = argc > 1 ? argv[1] : ".";
  if (directory.starts_with('-')) throw std::runtime_error("usage: diagnostics [DIRECTORY]");
  kolo::Session session(argc, argv);
  std::vector<float> weight(1 << 20, 1.0F);
  std::vector<float> bias(1 << 10, 1.0F);

  // Ten steps in a timeline for ui.perfetto.dev: one file per rank, because of %r.
  kolo::start_timeline(directory + "/steps-%r.json");
  for (int step = 0; step < 10; ++step) {
    auto first = kolo::allreduce_async(bias, {.name = "bias"});
    auto second = kolo::allreduce_async(weight, {.name = "weight"});
    first.wait();
    second.wait();
  }
  kolo::stop_timeline();

  // The most recent events of this rank, for kolo-diagnose.
  kolo::write_flight_record(directory + "/flight-" + std::to_string(kolo::rank()) + ".jsonl");
  if (kolo::rank() == 0) std::cout << kolo::statistics();
}

int main(int argc, char** argv) {
  try {
    run(argc, argv);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
