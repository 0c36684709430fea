// SPDX-License-Identifier: Apache-2.0
// The cost of allreduces between simulated hosts, as CSV. Algorithms: chosen, direct, doubling,
// halving.
//
//   data_program [--hosts 8,64,512] [--bytes 4,1024] [--algorithms chosen,direct]
#include <cstdio>
#include <exception>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "data_scale.hpp"
#include "support/command_line.hpp"

namespace {

using kolo::internal::backend::internode::InterNodeAlgorithm;
using kolo::internal::simulation::DataCase;
using kolo::internal::simulation::DataCost;
using kolo::internal::simulation::NetworkModel;

const std::map<std::string, std::optional<InterNodeAlgorithm>> algorithms{
    {"chosen", std::nullopt},
    {"direct", InterNodeAlgorithm::direct},
    {"doubling", InterNodeAlgorithm::doubling},
    {"halving", InterNodeAlgorithm::halving}};

// Over all hosts: beyond this the others take too many messages to be simulated in minutes.
constexpr double max_bytes_of_others = 12e9;

double microseconds(kolo::internal::simulation::Time time) {
  return static_cast<double>(time.count()) / 1000.0;
}

void run(const DataCase& one, const std::string& algorithm, const NetworkModel& model) {
  const DataCost cost = cost_of_allreduce(one, model);
  std::printf("%s,%d,%lld,%.1f,%.1f,%lld,%lld,%.0f\n", algorithm.c_str(), one.hosts,
              static_cast<long long>(one.bytes), microseconds(cost.time),
              microseconds(least_time(one, model)), static_cast<long long>(cost.most.messages_sent),
              static_cast<long long>(cost.most.bytes_sent), least_bytes(one));
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    std::vector<int> host_counts{3, 8, 64, 100, 512};
    std::vector<long long> sizes{4, 1024, 65536, 1048576, 104857600};
    std::vector<std::string> names{"chosen", "direct", "doubling"};
    kolo::internal::campaign::CommandLine()
        .add("--hosts", host_counts)
        .add("--bytes", sizes)
        .add("--algorithms", names)
        .parse(argc, argv);
    std::puts("algorithm,hosts,bytes,time_us,least_us,nic_messages,nic_bytes,least_bytes");
    for (const std::string& algorithm : names)
      for (const int hosts : host_counts)
        for (const long long bytes : sizes) {
          const double all_bytes = hosts * static_cast<double>(bytes);
          if (algorithm != "chosen" && all_bytes > max_bytes_of_others) continue;
          run({.hosts = hosts, .bytes = bytes, .algorithm = algorithms.at(algorithm)}, algorithm,
              NetworkModel());
        }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "data_program: %s\n", error.what());
    return 1;
  }
}
