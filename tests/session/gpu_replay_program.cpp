// SPDX-License-Identifier: Apache-2.0
// A loop of replays, of which the session sees nothing, loses a rank. The others learn of that by a
// barrier after their last replay.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>

#include "fake_cuda.hpp"
#include "kolo/cuda.hpp"
#include "kolo/kolo.hpp"

namespace {

using kolo::internal::backend::FakeCuda;

constexpr std::int64_t elements = 1000;

void train(int leaver) {
  const kolo::Session session;
  const kolo::CudaDevice gpu(kolo::local_rank());
  const auto runtime = kolo::internal::backend::gpu::find_runtime();
  auto& cuda = dynamic_cast<FakeCuda&>(*runtime);
  cuda.use_device(gpu.index());
  const auto stream = cuda.create_stream();
  const kolo::CudaStreamScope scope(stream);
  const auto memory = gpu.allocate(elements * sizeof(float));
  const auto step = [&] {
    kolo::allreduce(kolo::TensorView(reinterpret_cast<float*>(memory.get()), kolo::Shape{elements},
                                     kolo::Device{kolo::DeviceType::cuda, gpu.index()}),
                    {.name = "gradient"});
  };
  {
    const kolo::GraphWarmUp warm_up;
    step();
  }
  cuda.begin_capture(stream);
  step();
  const auto graph = cuda.end_capture(stream);
  for (int replay = 0; replay < 5; ++replay) {
    if (kolo::rank() == leaver && replay == 3) std::raise(SIGKILL);
    cuda.launch_graph(*graph, stream);
  }
  cuda.synchronize(stream);  // ends when the session has failed
  try {
    kolo::barrier();
  } catch (const kolo::PeerLeft& error) {
    std::printf("rank %d misses rank %d after its replays: %s\n", kolo::rank(), error.ranks().at(0),
                error.what());
    std::fflush(stdout);
    throw;
  }
}

}  // namespace

int main(int, char** argv) {
  try {
    train(std::atoi(argv[1]));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "caught: %s\n", error.what());
    return 1;
  }
}
