// SPDX-License-Identifier: Apache-2.0
// The host's cost of allreduces of GPU tensors: a pass submits one for each tensor of a set, or one
// for all of them (`-grouped`), waits until all are queued on the GPU, and then until the GPU is
// done.
//
//   mpirun -np N bench-gpu-host [--passes N] [SET]...    sets as for kolo-perf --gradients;
//                                                        by default resnet50 and 1000x1KB
//
// Ranks share a GPU if there are too few. bench-gpu-host_doubles runs without a GPU.
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "blocks.hpp"
#include "gradient_sets.hpp"
#include "kolo/cuda.hpp"
#include "kolo/kolo.hpp"
#include "measured.hpp"

namespace {

using Clock = std::chrono::steady_clock;

constexpr int passes_before = 40;  // until plans replay
constexpr int queued_passes = 20;

double milliseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

/// Milliseconds on a processor, of all threads.
double processor_time() {
  rusage use{};
  static_cast<void>(::getrusage(RUSAGE_SELF, &use));
  const auto milliseconds = [](const timeval& time) {
    return 1e3 * static_cast<double>(time.tv_sec) + 1e-3 * static_cast<double>(time.tv_usec);
  };
  return milliseconds(use.ru_utime) + milliseconds(use.ru_stime);
}

class TensorSet {
 public:
  TensorSet(const std::string& which, const kolo::CudaDevice& device, bool grouped)
      : grouped_(grouped), name_(which + ".all") {
    for (const perf::Gradient& gradient : perf::find_gradients(which, kolo::DType::f32)) {
      const std::int64_t elements = gradient.shape.elements();
      const std::vector<float> zeros(static_cast<std::size_t>(elements));
      memory_.push_back(device.allocate(zeros.size() * sizeof(float)));
      device.copy_to_device(memory_.back().get(), zeros.data(), zeros.size() * sizeof(float));
      views_.emplace_back(static_cast<void*>(memory_.back().get()), gradient.shape,
                          kolo::DType::f32, kolo::Device{kolo::DeviceType::cuda, device.index()});
      names_.push_back(which + "." + gradient.name);
    }
  }

  [[nodiscard]] std::size_t size() const { return views_.size(); }

  void submit() {
    if (grouped_) {
      futures_.push_back(kolo::grouped_allreduce_async(views_, {.name = name_}));
      return;
    }
    for (std::size_t i = 0; i < views_.size(); ++i)
      futures_.push_back(kolo::allreduce_async(views_[i], {.name = names_[i]}));
  }
  /// Until all are queued on the GPU.
  void wait() {
    for (kolo::Future<void>& future : futures_) future.get();
    futures_.clear();
  }

 private:
  bool grouped_;
  std::string name_;
  std::vector<std::shared_ptr<std::byte>> memory_{};
  std::vector<kolo::TensorView> views_{};
  std::vector<std::string> names_{};
  std::vector<kolo::Future<void>> futures_{};
};

/// The times of passes, in milliseconds.
struct Times {
  std::vector<double> submitted{};
  std::vector<double> queued{};
  std::vector<double> done{};
};

Times time_passes(TensorSet& tensors, int passes) {
  Times times;
  for (int i = 0; i < passes; ++i) {
    kolo::barrier();
    const auto begin = Clock::now();
    tensors.submit();
    times.submitted.push_back(milliseconds_since(begin));
    tensors.wait();
    times.queued.push_back(milliseconds_since(begin));
    kolo::synchronize();
    times.done.push_back(milliseconds_since(begin));
  }
  return times;
}

/// Milliseconds of one of several passes that the host does not wait for in between.
double time_in_queue(TensorSet& tensors) {
  kolo::barrier();
  const auto begin = Clock::now();
  for (int i = 0; i < queued_passes; ++i) {
    tensors.submit();
    tensors.wait();
  }
  kolo::synchronize();
  return milliseconds_since(begin) / queued_passes;
}

void measure(const std::string& which, const kolo::CudaDevice& device, int passes, bool grouped) {
  TensorSet tensors(which, device, grouped);
  for (int i = 0; i < std::min(passes, passes_before); ++i) {
    tensors.submit();
    tensors.wait();
  }
  kolo::synchronize();
  const double before = processor_time();
  const Times times = time_passes(tensors, passes);
  const double processor = (processor_time() - before) / passes;
  const std::string name =
      fmt::format("host-{}-{}{}", kolo::size(), which, grouped ? "-grouped" : "");
  const double submitted = blocks::median(times.submitted);
  measured::print(name + "-submitted", submitted, "ms");
  measured::print(name + "-each", 1e3 * submitted / static_cast<double>(tensors.size()), "us");
  measured::print(name + "-queued", blocks::median(times.queued), "ms");
  measured::print(name + "-done", blocks::median(times.done), "ms");
  measured::print(name + "-in-queue", time_in_queue(tensors), "ms");
  measured::print(name + "-processor", processor, "ms");
}

void run(std::vector<std::string> words) {
  int passes = 100;
  if (words.size() >= 2 && words.front() == "--passes") {
    passes = std::max(1, std::atoi(words[1].c_str()));
    words.erase(words.begin(), words.begin() + 2);
  }
  if (words.empty()) words = {"resnet50", "1000x1KB"};
  if (kolo::CudaDevice::count() == 0) throw std::runtime_error("there is no GPU here");
  const kolo::CudaDevice device(kolo::local_rank() % kolo::CudaDevice::count());
  for (const std::string& which : words)
    for (const bool grouped : {false, true}) measure(which, device, passes, grouped);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const kolo::Session session({.flight_recorder_dir = "off"});
    run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench-gpu-host: {}\n", error.what());
    return 1;
  }
}
