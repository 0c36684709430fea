// SPDX-License-Identifier: Apache-2.0
// The cost of allreduces between simulated hosts, as CSV. Algorithms: chosen, direct, doubling,
// halving.
//
//   data_program [--hosts 8,64,512] [--bytes 4,1024] [--algorithms chosen,direct]
#include <cstdio>
#include <exception>
#include <map>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "data_scale.hpp"

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

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> words;
  std::istringstream stream(text);
  for (std::string word; std::getline(stream, word, ',');) words.push_back(word);
  return words;
}

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
    std::map<std::string, std::string> options{{"--hosts", "3,8,64,100,512"},
                                               {"--bytes", "4,1024,65536,1048576,104857600"},
                                               {"--algorithms", "chosen,direct,doubling"}};
    for (int i = 1; i < argc; i += 2) {
      const auto option = options.find(argv[i]);
      if (option == options.end() || i + 1 == argc)
        throw std::invalid_argument(std::string(argv[i]) + " is unknown, or has no value");
      option->second = argv[i + 1];
    }
    std::puts("algorithm,hosts,bytes,time_us,least_us,nic_messages,nic_bytes,least_bytes");
    for (const std::string& algorithm : split(options["--algorithms"]))
      for (const std::string& hosts : split(options["--hosts"]))
        for (const std::string& bytes : split(options["--bytes"])) {
          const double all_bytes = std::stod(hosts) * std::stod(bytes);
          if (algorithm != "chosen" && all_bytes > max_bytes_of_others) continue;
          run({.hosts = std::stoi(hosts),
               .bytes = std::stoll(bytes),
               .algorithm = algorithms.at(algorithm)},
              algorithm, NetworkModel());
        }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "data_program: %s\n", error.what());
    return 1;
  }
}
