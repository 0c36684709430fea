// SPDX-License-Identifier: Apache-2.0
// The cost of allreduces between simulated hosts, as CSV. Algorithms: chosen, direct, doubling,
// halving. With --operations, the cost of other collectives: allgather, broadcast, reducescatter.
//
//   data_program [--hosts 8,64,512] [--bytes 4,1024] [--algorithms chosen,direct]
//   data_program --operations broadcast [--hosts 8,64,512] [--bytes 8388608]
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

struct Operation {
  DataCost (*cost)(const DataCase&, const NetworkModel&);
  double (*least_bytes)(const DataCase&);  // that a NIC sends or receives
};

double half_of_an_allreduce(const DataCase& one) { return least_bytes(one) / 2; }
double all_bytes(const DataCase& one) { return static_cast<double>(one.bytes); }

const std::map<std::string, Operation> operations{
    {"allgather", {kolo::internal::simulation::cost_of_allgather, half_of_an_allreduce}},
    {"broadcast", {kolo::internal::simulation::cost_of_broadcast, all_bytes}},
    {"reducescatter", {kolo::internal::simulation::cost_of_reducescatter, half_of_an_allreduce}}};

void run_operations(const std::vector<std::string>& names, const std::vector<int>& host_counts,
                    const std::vector<long long>& sizes) {
  const NetworkModel model;
  std::puts("operation,hosts,bytes,time_us,least_us,nic_messages,nic_bytes");
  for (const std::string& name : names)
    for (const int hosts : host_counts)
      for (const long long bytes : sizes) {
        const DataCase one{.hosts = hosts, .bytes = bytes};
        const Operation& operation = operations.at(name);
        const DataCost cost = operation.cost(one, model);
        std::printf("%s,%d,%lld,%.1f,%.1f,%lld,%lld\n", name.c_str(), hosts, bytes,
                    microseconds(cost.time),
                    microseconds(time_of(operation.least_bytes(one), model)),
                    static_cast<long long>(cost.most.messages_sent),
                    static_cast<long long>(cost.most.bytes_sent));
        std::fflush(stdout);
      }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    std::vector<int> host_counts{3, 8, 64, 100, 512};
    std::vector<long long> sizes{4, 1024, 65536, 1048576, 104857600};
    std::vector<std::string> names{"chosen", "direct", "doubling"};
    std::vector<std::string> others;
    kolo::internal::campaign::CommandLine()
        .add("--hosts", host_counts)
        .add("--bytes", sizes)
        .add("--algorithms", names)
        .add("--operations", others)
        .parse(argc, argv);
    if (!others.empty()) {
      run_operations(others, host_counts, sizes);
      return 0;
    }
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
