// SPDX-License-Identifier: Apache-2.0
// Measures an allreduce between hosts, and the time that the link needs for the same bytes.
//
//   link_program [--megabytes N] [--rounds N]
//
// The hosts have the same number of ranks. In an allreduce among H hosts, each has to send
// 2 (H - 1) / H times the tensor: between two hosts every byte crosses the link once in each
// direction. Each round measures the same bytes sent by MPI from the first host to the second, each
// rank its part; sent by each host to the next one at once; and the allreduce of Kolo. No session
// exists while MPI is measured, so that MPI has the link to itself.
#include <mpi.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "kolo/kolo.hpp"
#include "support/command_line.hpp"

namespace {

struct Options {
  std::size_t megabytes = 100;
  int rounds = 5;
};

double seconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// The time of the slowest rank.
double time_of_mpi(const std::function<void()>& work) {
  MPI_Barrier(MPI_COMM_WORLD);
  double seconds = seconds_of(work);
  MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return seconds;
}

/// The placement of the ranks on hosts.
struct Place {
  int rank = 0;
  int size = 1;
  int local_size = 1;
  int hosts = 1;
};

Place find_place() {
  const kolo::Session session;
  if (kolo::cross_size() < 2 || !kolo::homogeneous())
    throw std::runtime_error("this is for several hosts with equally many ranks");
  return {kolo::rank(), kolo::size(), kolo::local_size(), kolo::cross_size()};
}

/// This rank's share of the bytes that its host sends in an allreduce of so many.
class Transfer {
 public:
  Transfer(std::size_t bytes, const Place& place)
      : bytes_(static_cast<int>(2 * bytes * static_cast<std::size_t>(place.hosts - 1) /
                                static_cast<std::size_t>(place.hosts * place.local_size))),
        next_((place.rank + place.local_size) % place.size),
        previous_((place.rank + place.size - place.local_size) % place.size),
        host_(place.rank / place.local_size),
        sent_(static_cast<std::size_t>(bytes_), 'k'),
        received_(static_cast<std::size_t>(bytes_)) {}

  void one_way() {
    if (host_ == 0) {
      MPI_Send(sent_.data(), bytes_, MPI_BYTE, next_, 0, MPI_COMM_WORLD);
    } else if (host_ == 1) {
      MPI_Recv(received_.data(), bytes_, MPI_BYTE, previous_, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
  }

  void both_ways() {
    MPI_Sendrecv(sent_.data(), bytes_, MPI_BYTE, next_, 0, received_.data(), bytes_, MPI_BYTE,
                 previous_, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }

 private:
  int bytes_;
  int next_;  // on the next host
  int previous_;
  int host_;
  std::vector<char> sent_;
  std::vector<char> received_;
};

/// Fills the tensor, reduces it, and checks every element. Before that, it reduces it without
/// measuring: TCP starts slowly on a new connection, and MPI has used its own before.
double time_of_allreduce(std::vector<float>& tensor) {
  const kolo::Session session;
  const int size = kolo::size();
  const auto rank = static_cast<float>(kolo::rank());
  kolo::allreduce(tensor, {.name = "tensor", .op = kolo::ReduceOp::sum});
  for (std::size_t i = 0; i < tensor.size(); ++i) tensor[i] = static_cast<float>(i % 1000) + rank;
  kolo::barrier();
  double seconds =
      seconds_of([&] { kolo::allreduce(tensor, {.name = "tensor", .op = kolo::ReduceOp::sum}); });
  kolo::allreduce(seconds, {.name = "seconds", .op = kolo::ReduceOp::max});
  for (std::size_t i = 0; i < tensor.size(); ++i) {
    const float expected = static_cast<float>(size) * static_cast<float>(i % 1000) +
                           static_cast<float>(size * (size - 1) / 2);
    if (tensor[i] != expected)
      throw std::runtime_error("element " + std::to_string(i) + " is wrong");
  }
  return seconds;
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

void measure(const Options& options) {
  const Place place = find_place();
  const std::size_t bytes = options.megabytes * 1'000'000;
  Transfer transfer(bytes, place);
  std::vector<float> tensor(bytes / sizeof(float));
  std::vector<double> one_way, both_ways, by_kolo;
  for (int round = 0; round <= options.rounds; ++round) {
    const std::array<double, 3> seconds{time_of_mpi([&] { transfer.one_way(); }),
                                        time_of_mpi([&] { transfer.both_ways(); }),
                                        time_of_allreduce(tensor)};
    if (round == 0) continue;  // sets up connections
    one_way.push_back(seconds[0]);
    both_ways.push_back(seconds[1]);
    by_kolo.push_back(seconds[2]);
  }
  if (place.rank != 0) return;
  const double link = median(one_way);
  const auto print = [&](const char* what, const std::vector<double>& times) {
    std::printf("%-28s %8.1f ms  %5.2f times the link's\n", what, 1e3 * median(times),
                median(times) / link);
  };
  std::printf("%zu MB, %d ranks on each of %d hosts, medians of %d rounds\n", options.megabytes,
              place.local_size, place.hosts, options.rounds);
  print("one way, by MPI (the link)", one_way);
  print("both ways, by MPI", both_ways);
  print("kolo::allreduce", by_kolo);
}

}  // namespace

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided);
  try {
    Options options;
    kolo::internal::campaign::CommandLine()
        .add("--megabytes", options.megabytes)
        .add("--rounds", options.rounds)
        .parse(argc, argv);
    measure(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "link_program: %s\n", error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
}
