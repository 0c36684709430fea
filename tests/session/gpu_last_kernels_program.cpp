// SPDX-License-Identifier: Apache-2.0
// The last rank is killed while its GPU, and so those of the others, still work on the last
// allreduce, after all ranks have called `shutdown`. The others must not wait for their GPUs
// forever.
#include <chrono>
#include <csignal>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "fake_cuda.hpp"
#include "fake_nccl.hpp"
#include "kolo/cuda.hpp"
#include "kolo/kolo.hpp"
#include "session/api/current.hpp"

int main() {
  using namespace kolo;
  using namespace kolo::internal;
  const auto cuda = std::make_shared<backend::FakeCuda>(std::vector{0, 1, 2, 3}, 7,
                                                        backend::FakeCuda::Clock::by_itself);
  const auto nccl = std::make_shared<backend::FakeNccl>(backend::FakeNcclWorld::of_job(), cuda);
  session::start_session({.options = {.flight_recorder_dir = "off"},
                          .gpu_libraries = {cuda, [nccl] { return nccl; }}});
  cuda->use_device(rank());
  const bool is_last = rank() == size() - 1;
  const backend::gpu::StreamHandle stream = cuda->create_stream();
  const CudaStreamScope scope(stream);
  std::thread killer;
  if (is_last) {
    cuda->enqueue(stream, [] { return false; });  // its part never comes
    // The others have agreed on the end by then; if they have not, they notice the loss anyway.
    killer = std::thread([] {
      std::this_thread::sleep_for(std::chrono::seconds(1));
      std::raise(SIGKILL);
    });
  }
  constexpr std::size_t elements = 1000;
  auto* const memory = reinterpret_cast<float*>(cuda->make_memory(elements * sizeof(float)));
  const TensorView gradient(memory, Shape{elements}, Device{DeviceType::cuda, rank()});
  allreduce_async(gradient, {.name = "last"}).get();
  session::end_session(true, "");
}
