// SPDX-License-Identifier: Apache-2.0
// A rank is killed while GPUs work together. The other ranks must learn of it, copy their model off
// the GPU, find it intact, and exit.
//
// Usage: mpirun --enable-recovery -np N gpu_faults SCENARIO
//   kill    in the middle of an allreduce
//   two     in the middle of two allreduces on two communicators
//   init    while the first communicator is being created
//   shrink  while a communicator is being derived from another
// Ranks share a GPU if there are too few. The killed rank is the second to last.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "kolo/cuda.hpp"
#include "kolo/kolo.hpp"

namespace {

constexpr std::int64_t large = std::int64_t{16} << 20;  // elements: many times a fault's delay
constexpr std::int64_t small = 1000;
constexpr std::size_t model_elements = 3000000;

/// Tensors of floats on the GPU.
class Card {
 public:
  Card() : device_(kolo::local_rank() % std::max(1, kolo::CudaDevice::count())) {}

  [[nodiscard]] kolo::TensorView make(std::int64_t elements, float value) {
    const std::vector<float> host(static_cast<std::size_t>(elements), value);
    auto memory = device_.allocate(host.size() * sizeof(float));
    device_.copy_to_device(memory.get(), host.data(), host.size() * sizeof(float));
    auto* const tensor = reinterpret_cast<float*>(memory.get());
    tensors_.push_back(std::move(memory));
    return {tensor, kolo::Shape{elements}, kolo::Device{kolo::DeviceType::cuda, device_.index()}};
  }

  /// The model of a rank has other numbers than that of another.
  void place_model() {
    std::vector<float> host(model_elements);
    std::iota(host.begin(), host.end(), static_cast<float>(kolo::rank()));
    model_ = device_.allocate(model_elements * sizeof(float));
    device_.copy_to_device(model_.get(), host.data(), model_elements * sizeof(float));
  }
  [[nodiscard]] bool model_is_whole(int rank) {
    std::vector<float> found(model_elements);
    std::vector<float> wanted(model_elements);
    std::iota(wanted.begin(), wanted.end(), static_cast<float>(rank));
    device_.copy_to_host(found.data(), model_.get(), model_elements * sizeof(float));
    return found == wanted;
  }

 private:
  kolo::CudaDevice device_;
  std::vector<std::shared_ptr<std::byte>> tensors_{};
  std::shared_ptr<std::byte> model_{};
};

int victim() { return kolo::size() - 2; }

/// Waits for what was begun; the victim for no longer than it takes the GPU to begin.
void await(std::vector<kolo::Future<void>>& begun) {
  if (kolo::rank() == victim()) {
    (void)begun.front().wait_for(std::chrono::milliseconds(10));  // any moment will do
    std::raise(SIGKILL);
  }
  for (kolo::Future<void>& future : begun) future.synchronize();
}

void train(const std::string& scenario, Card& card) {
  if (scenario != "init") {
    for (int step = 0; step < 3; ++step) kolo::allreduce(card.make(small, 1.0F), {.name = "warm"});
  }
  std::vector<int> all_but_last(static_cast<std::size_t>(kolo::size()) - 1);
  std::iota(all_but_last.begin(), all_but_last.end(), 0);
  std::vector<kolo::Future<void>> begun;
  if (scenario == "kill" || scenario == "init") {
    begun.push_back(kolo::allreduce_async(card.make(large, 1.0F), {.name = "large"}));
  } else {
    const kolo::ProcessSet some = kolo::add_process_set(all_but_last);
    const bool in_some = kolo::rank() < kolo::size() - 1;
    if (scenario == "two") {
      if (in_some) kolo::allreduce(card.make(small, 1.0F), {.name = "warm", .process_set = some});
      begun.push_back(kolo::allreduce_async(card.make(large, 1.0F), {.name = "large"}));
    }
    if (in_some)
      begun.push_back(
          kolo::allreduce_async(card.make(large, 1.0F), {.name = "some", .process_set = some}));
    // The rank outside waits for the others, of which one never comes.
    if (begun.empty())
      begun.push_back(kolo::allreduce_async(card.make(small, 1.0F), {.name = "last"}));
    await(begun);
  }
  await(begun);
}

int run(const std::string& scenario) {
  Card card;
  const int rank = kolo::rank();
  card.place_model();
  try {
    train(scenario, card);
    fmt::print("rank {}: the loss of a rank was not noticed\n", rank);
    return 1;
  } catch (const kolo::Error& error) {
    fmt::print("rank {} learned: {}\n", rank, error.what());
  }
  const bool whole = card.model_is_whole(rank);
  fmt::print("rank {}: its model, copied off the GPU, is {}\n", rank, whole ? "whole" : "damaged");
  return whole ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  int status = 2;
  try {
    const kolo::Session session({.flight_recorder_dir = "off"});
    status = run(argc > 1 ? argv[1] : "kill");
    std::fflush(stdout);
    std::_Exit(status);  // MPI cannot be finalized without the lost rank
  } catch (const std::exception& error) {
    fmt::print("gpu_faults: {}\n", error.what());
  }
  return status;
}
