// SPDX-License-Identifier: Apache-2.0
// Epochs in which ranks have unequal numbers of steps, in process sets that come and go, with a
// mistake of one rank in between. Prints a digest of all results, which must be the same for
// tensors on CPUs and on GPUs, on every data path.
//
// Usage: gpu_epochs_program cpu|cuda
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "kolo/cuda.hpp"
#include "kolo/kolo.hpp"

namespace {

std::optional<kolo::CudaDevice> gpu;

class Tensor {
 public:
  explicit Tensor(std::vector<float> values) : values_(std::move(values)) {
    if (!gpu) return;
    memory_ = gpu->allocate(bytes());
    gpu->copy_to_device(memory_.get(), values_.data(), bytes());
  }

  [[nodiscard]] kolo::TensorView view(std::size_t elements) {
    const kolo::Shape shape{static_cast<std::int64_t>(elements)};
    if (!gpu) return {values_.data(), shape};
    return {reinterpret_cast<float*>(memory_.get()), shape,
            kolo::Device{kolo::DeviceType::cuda, gpu->index()}};
  }
  [[nodiscard]] kolo::TensorView view() { return view(values_.size()); }
  [[nodiscard]] std::span<const float> read() {
    if (gpu) gpu->copy_to_host(values_.data(), memory_.get(), bytes());
    return values_;
  }

 private:
  [[nodiscard]] std::size_t bytes() const { return values_.size() * sizeof(float); }

  std::vector<float> values_;
  std::shared_ptr<std::byte> memory_{};
};

class Digest {
 public:
  void add(std::span<const float> values) {
    for (const float value : values) {
      std::uint32_t bits = 0;
      std::memcpy(&bits, &value, sizeof(bits));
      hash_ = (hash_ ^ bits) * 1099511628211U;
    }
  }
  [[nodiscard]] unsigned long long value() const { return hash_; }

 private:
  std::uint64_t hash_ = 14695981039346656037U;
};

/// Numbers whose sum depends on the order of the ranks.
Tensor make(std::size_t elements, unsigned salt) {
  std::mt19937 random(salt * 64 + static_cast<unsigned>(kolo::rank()));
  std::uniform_real_distribution<float> numbers(-1.0F, 1.0F);
  std::vector<float> values(elements);
  std::generate(values.begin(), values.end(), [&] { return numbers(random); });
  return Tensor(std::move(values));
}

std::vector<int> first_ranks(int count) {
  std::vector<int> ranks(static_cast<std::size_t>(count));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

/// The last rank submits another shape; all of them learn of it and go on.
void make_a_mistake(Digest& digest, unsigned salt) {
  Tensor odd = make(9, salt);
  const std::size_t elements = kolo::rank() == kolo::size() - 1 ? 8 : 9;
  try {
    kolo::allreduce(odd.view(elements), {.name = "odd"});
    if (kolo::size() > 1) std::printf("the mistake was not noticed\n");
  } catch (const kolo::Mismatch&) {
    digest.add(odd.read());  // it is unchanged
  }
}

void train(Digest& digest, const kolo::ProcessSet& half, int epoch, int step) {
  const auto salt = static_cast<unsigned>(epoch * 100 + step);
  Tensor large = make(70000, salt);
  Tensor small = make(33, salt + 50);
  Tensor in_half = make(500, salt + 70);
  std::vector<kolo::Future<void>> pending;
  pending.push_back(kolo::allreduce_async(large.view(), {.name = "large"}));
  pending.push_back(kolo::allreduce_async(
      small.view(), {.name = "small", .average_over = kolo::AverageOver::present}));
  if (half.rank() >= 0)
    pending.push_back(kolo::allreduce_async(
        in_half.view(),
        {.name = "half", .op = kolo::ReduceOp::sum, .postscale = 0.7, .process_set = half}));
  if (step == 1 && epoch == 1) make_a_mistake(digest, salt + 90);
  for (kolo::Future<void>& future : pending) future.wait();
  digest.add(large.read());
  digest.add(small.read());
  if (half.rank() >= 0) digest.add(in_half.read());
}

void run_epochs(Digest& digest) {
  const int ranks = kolo::size();
  for (int epoch = 0; epoch < 5; ++epoch) {
    const kolo::ProcessSet half = kolo::add_process_set(first_ranks((ranks + 1) / 2));
    Tensor all = make(4000, static_cast<unsigned>(epoch));
    kolo::allreduce(all.view(), {.name = "all", .op = kolo::ReduceOp::sum});
    digest.add(all.read());
    const int steps = 2 + (kolo::rank() + epoch / 2) % ranks;
    for (int step = 0; step < steps; ++step) train(digest, half, epoch, step);
    const int last = kolo::join();
    kolo::broadcast(all.view(), last, {.name = "all"});
    digest.add(all.read());
    if (epoch % 2 == 0) kolo::remove_process_set(half);
  }
}

/// A set is made, used and removed by one thread while another one trains.
void change_sets(Digest& digest) {
  Digest of_sets;
  std::thread changes([&of_sets] {
    for (int round = 0; round < 12; ++round) {
      const kolo::ProcessSet set =
          kolo::add_process_set(first_ranks(1 + round % std::max(1, kolo::size())));
      if (set.rank() >= 0) {
        for (int i = 0; i < 2; ++i) {
          Tensor tensor = make(1000, static_cast<unsigned>(5000 + round * 10 + i));
          kolo::allreduce(tensor.view(), {.name = "of the set", .process_set = set});
          of_sets.add(tensor.read());
        }
      }
      kolo::remove_process_set(set);
    }
  });
  for (int step = 0; step < 30; ++step) {
    Tensor tensor = make(20000, static_cast<unsigned>(9000 + step));
    kolo::allreduce(tensor.view(), {.name = "gradient"});
    digest.add(tensor.read());
  }
  changes.join();
  std::printf("rank %d: the sets give %llx\n", kolo::rank(), of_sets.value());
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const kolo::Session session({.flight_recorder_dir = "off"});
    if (argc > 1 && std::string_view(argv[1]) == "cuda") gpu.emplace(kolo::local_rank());
    Digest digest;
    run_epochs(digest);
    change_sets(digest);
    std::printf("rank %d: the steps give %llx\n", kolo::rank(), digest.value());
    std::fflush(stdout);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "caught: %s\n", error.what());
    return 1;
  }
}
