// SPDX-License-Identifier: Apache-2.0
// Measures communication hooks: the speed of their loops in GB/s of f32 on one rank, then the bytes
// and the time of a step with each hook. The bytes are those of this rank's tensors, from the
// counters; with `compression`, half of them are sent. Usage: mpirun -np N bench-hooks [STEPS]
#include <kolo/kolo.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "training/hooks/block_quantizer.hpp"
#include "training/hooks/low_rank.hpp"

namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

/// The gradients of a network of convolutions for 10 classes of images, and a long last layer.
class Network {
 public:
  Network() {
    for (const auto& [from, to] : {std::pair{3, 64}, {64, 128}, {128, 256}, {256, 256}}) {
      add("conv", {to, from, 3, 3});
      add("bias", {to});
    }
    add("hidden", {1024, 4096});
    add("last", {10, 1024});
  }

  std::vector<kolo::NamedTensor> gradients() {
    std::vector<kolo::NamedTensor> tensors;
    for (std::size_t i = 0; i < memory_.size(); ++i)
      tensors.push_back({names_[i], kolo::TensorView(memory_[i].data(), shapes_[i])});
    return tensors;
  }
  void step() {}
  void fill() {
    for (std::size_t i = 0; i < memory_.size(); ++i)
      kolo::internal::fill_pseudo_randomly(i, static_cast<std::int64_t>(memory_[i].size()),
                                           memory_[i].data());
  }

 private:
  void add(const std::string& name, const kolo::Shape& shape) {
    names_.push_back(std::to_string(names_.size()) + "." + name);
    shapes_.push_back(shape);
    memory_.emplace_back(static_cast<std::size_t>(shape.elements()));
  }

  std::vector<std::string> names_;
  std::vector<kolo::Shape> shapes_;
  std::vector<std::vector<float>> memory_;
};

template <typename Work>
double best_seconds(int rounds, const Work& work) {
  double best = std::numeric_limits<double>::infinity();
  for (int round = 0; round < rounds; ++round) {
    const auto start = Clock::now();
    work();
    best = std::min(best, Seconds(Clock::now() - start).count());
  }
  return best;
}

void print_speed(const char* what, std::int64_t elements, double seconds) {
  std::printf("%-28s %8.2f GB/s\n", what, static_cast<double>(elements) * 4e-9 / seconds);
}

void measure_loops() {
  constexpr std::int64_t elements = 1 << 20;
  constexpr int rounds = 20;
  const kolo::internal::BlockQuantizer quantizer(256);
  std::vector<float> values(elements);
  std::vector<float> result(elements);
  kolo::internal::fill_pseudo_randomly(0, elements, values.data());
  std::vector<std::byte> records(
      static_cast<std::size_t>(quantizer.blocks(elements) * quantizer.record_bytes()));
  print_speed("int8: quantize", elements, best_seconds(rounds, [&] {
                quantizer.quantize(values.data(), elements, records.data());
              }));
  print_speed("int8: add", elements, best_seconds(rounds, [&] {
                quantizer.add(records.data(), elements, result.data());
              }));
  print_speed("int8: keep the error", elements, best_seconds(rounds, [&] {
                quantizer.keep_error(values.data(), records.data(), records.data(), elements,
                                     result.data());
              }));
  print_speed("int8: dequantize", elements, best_seconds(rounds, [&] {
                quantizer.dequantize(records.data(), elements, 0.5F, result.data());
              }));
  const kolo::internal::LowRank shape{.rows = 1024, .columns = 1024, .rank = 4};
  std::vector<float> left(static_cast<std::size_t>(shape.left_size()));
  std::vector<float> right(static_cast<std::size_t>(shape.right_size()), 0.1F);
  using namespace kolo::internal;
  print_speed("power_sgd: left factor", elements, best_seconds(rounds, [&] {
                multiply_by_right(shape, values.data(), right.data(), left.data());
              }));
  print_speed("power_sgd: right factor", elements, best_seconds(rounds, [&] {
                multiply_by_left(shape, values.data(), left.data(), right.data());
              }));
  print_speed("power_sgd: expand", elements, best_seconds(rounds, [&] {
                expand(shape, left.data(), right.data(), 1.0F, result.data());
              }));
}

std::uint64_t bytes_so_far() {
  std::uint64_t sum = 0;
  for (const kolo::Statistics::Kind& kind : kolo::statistics().kinds) sum += kind.bytes;
  return sum;
}

void measure_steps(const char* what, const kolo::DistributedOptimizerOptions& options, int steps) {
  Network network;
  kolo::DistributedOptimizer optimizer(network, options);
  std::vector<double> seconds;
  std::uint64_t bytes = 0;
  for (int step = 0; step <= steps; ++step) {
    network.fill();
    kolo::barrier();
    const std::uint64_t before = bytes_so_far();
    const auto start = Clock::now();
    optimizer.step();
    if (step > 0) seconds.push_back(Seconds(Clock::now() - start).count());
    bytes = bytes_so_far() - before;
  }
  std::sort(seconds.begin(), seconds.end());
  if (kolo::rank() == 0)
    std::printf("%-28s %12llu %10.2f\n", what, static_cast<unsigned long long>(bytes),
                1e3 * seconds[seconds.size() / 2]);
}

}  // namespace

int main(int argc, char** argv) {
  const kolo::Session session(argc, argv);
  const int steps = argc > 1 ? std::atoi(argv[1]) : 20;
  if (steps < 1) {
    std::fprintf(stderr, "usage: bench-hooks [STEPS]\n");
    return 1;
  }
  if (kolo::rank() == 0) measure_loops();
  if (kolo::rank() == 0) std::printf("\n%-28s %12s %10s\n", "hook", "bytes/step", "ms/step");
  measure_steps("none", {}, steps);
  measure_steps("none, compression bf16", {.compression = kolo::Compression::bf16}, steps);
  measure_steps("int8", {.hook = kolo::int8()}, steps);
  for (const int rank : {1, 2, 4, 8})
    measure_steps(("power_sgd, rank " + std::to_string(rank)).c_str(),
                  {.hook = kolo::power_sgd({.rank = rank})}, steps);
}
