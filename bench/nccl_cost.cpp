// SPDX-License-Identifier: Apache-2.0
// The time of NCCL's allreduces of two or more ranks, called in several ways.
//
//   mpirun -np 2 bench-nccl-cost
//   bench-nccl-cost --plan    print what is measured; needs no GPU
//
// Ways:
//   kolo         as Kolo calls NCCL, through its own interface
//   blocking     a communicator whose calls block, as PyTorch uses NCCL
//   nonblocking  a communicator whose calls return before NCCL has queued the work
//   window       blocking, in a symmetric window (NCCL 2.27 and later)
// Times, each a median on rank 0: `host`, until more work may be queued behind the call; `done`,
// until the GPU is done; `in-queue`, each of several calls that nothing waits for in between.
//
// Ranks share a GPU if there are too few: that needs NCCL 2.30 and NCCL_MULTI_RANK_GPU_ENABLE=1.
// The session only exchanges the communicators' ids, on CPUs.
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <nccl.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "backend/gpu/nccl/library.hpp"
#include "blocks.hpp"
#include "kolo/kolo.hpp"
#include "measured.hpp"

namespace {

namespace own = kolo::internal::backend::nccl;
using Clock = std::chrono::steady_clock;

constexpr std::array sizes{std::int64_t{4}, std::int64_t{1} << 20, std::int64_t{64} << 20};
constexpr std::int64_t largest = sizes.back();
constexpr int calls_before = 10;
constexpr int queued_calls = 20;

void check(cudaError_t error) {
  if (error == cudaSuccess) return;
  throw std::runtime_error(fmt::format("CUDA: {}", cudaGetErrorString(error)));
}

void check(ncclResult_t result) {
  if (result == ncclSuccess || result == ncclInProgress) return;
  throw std::runtime_error(fmt::format("NCCL: {}", ncclGetErrorString(result)));
}

double microseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

/// One way to reduce `bytes` of memory on a stream.
struct Way {
  std::string name;
  std::function<void(std::int64_t bytes)> reduce;
};

/// This rank's part: a stream, memory, and how both are used.
class Rank {
 public:
  Rank() {
    int devices = 0;
    check(cudaGetDeviceCount(&devices));
    check(cudaSetDevice(kolo::local_rank() % devices));
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    check(cudaMalloc(&memory_, static_cast<std::size_t>(largest)));
    check(cudaMemset(memory_, 0, static_cast<std::size_t>(largest)));
    check(cudaDeviceSynchronize());
  }

  /// Communicators and memory last until the process ends.
  [[nodiscard]] std::vector<Way> ways() {
    std::vector<Way> all{kolo_s(), bare("blocking", 1), bare("nonblocking", 0), in_window()};
    std::erase_if(all, [](const Way& way) { return !way.reduce; });
    return all;
  }

  void synchronize() const { check(cudaStreamSynchronize(stream_)); }

 private:
  [[nodiscard]] static ncclUniqueId share_id() {
    std::string bytes(sizeof(ncclUniqueId), '\0');
    if (kolo::rank() == 0) {
      ncclUniqueId id{};
      check(ncclGetUniqueId(&id));
      std::memcpy(bytes.data(), &id, sizeof(id));
    }
    kolo::broadcast(bytes, 0, {.name = "id"});
    ncclUniqueId id{};
    std::memcpy(&id, bytes.data(), sizeof(id));
    return id;
  }

  static void await(ncclComm_t comm) {
    ncclResult_t state = ncclInProgress;
    while (true) {
      check(ncclCommGetAsyncError(comm, &state));
      if (state != ncclInProgress) break;
      std::this_thread::yield();
    }
    check(state);
  }

  [[nodiscard]] static ncclComm_t make_communicator(int blocking) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = blocking;
    ncclComm_t comm = nullptr;
    check(ncclCommInitRankConfig(&comm, kolo::size(), share_id(), kolo::rank(), &config));
    await(comm);
    return comm;
  }

  void reduce(ncclComm_t comm, void* memory, std::int64_t bytes) const {
    check(ncclAllReduce(memory, memory, static_cast<std::size_t>(bytes / 4), ncclFloat32, ncclSum,
                        comm, stream_));
    await(comm);
  }

  [[nodiscard]] Way bare(std::string name, int blocking) {
    const ncclComm_t comm = make_communicator(blocking);
    return {std::move(name), [this, comm](std::int64_t bytes) { reduce(comm, memory_, bytes); }};
  }

  /// Without a function if there are no such windows here.
  [[nodiscard]] Way in_window() {
    using Register = ncclResult_t(ncclComm_t, void*, std::size_t, void**, int);
    constexpr int symmetric = 1;  // NCCL_WIN_COLL_SYMMETRIC, which older headers lack
    auto* const register_window =
        reinterpret_cast<Register*>(::dlsym(RTLD_DEFAULT, "ncclCommWindowRegister"));
    if (register_window == nullptr) return {};
    const ncclComm_t comm = make_communicator(1);
    void* memory = nullptr;
    void* window = nullptr;
    check(ncclMemAlloc(&memory, static_cast<std::size_t>(largest)));
    const ncclResult_t result =
        register_window(comm, memory, static_cast<std::size_t>(largest), &window, symmetric);
    if (result != ncclSuccess || window == nullptr) return {};
    return {"window", [this, comm, memory](std::int64_t bytes) { reduce(comm, memory, bytes); }};
  }

  [[nodiscard]] Way kolo_s() {
    const ncclUniqueId shared = share_id();
    own::UniqueId id{};
    std::memcpy(id.data(), &shared, id.size());
    const std::shared_ptr<own::Library> library = own::find_library();
    const auto comm = std::make_shared<own::CommHandle>(nullptr);
    const auto await_ready = [library, comm](own::State state) {
      while (state == own::State::in_progress) {
        std::this_thread::yield();
        state = library->state(*comm);
      }
    };
    const auto root = std::make_shared<own::CommHandle>(nullptr);
    static_cast<void>(library->init(*root, kolo::size(), id, kolo::rank()));
    while (library->state(*root) == own::State::in_progress) std::this_thread::yield();
    library->split(*comm, *root);
    while (library->state(*root) == own::State::in_progress ||
           std::atomic_ref(*comm).load() == nullptr)
      std::this_thread::yield();
    return {"kolo", [this, library, comm, root, await_ready](std::int64_t bytes) {
              library->group_start();
              library->all_reduce(memory_, memory_, bytes / 4, kolo::DType::f32, own::RedOp::sum,
                                  *comm, stream_);
              await_ready(library->group_end(*comm));
            }};
  }

  cudaStream_t stream_ = nullptr;
  void* memory_ = nullptr;
};

void measure(const Rank& rank, const Way& way, std::int64_t bytes) {
  const int times = bytes == largest ? 30 : 100;
  for (int i = 0; i < calls_before; ++i) way.reduce(bytes);
  rank.synchronize();
  std::vector<double> host;
  std::vector<double> done;
  for (int i = 0; i < times; ++i) {
    kolo::barrier();
    const auto begin = Clock::now();
    way.reduce(bytes);
    host.push_back(microseconds_since(begin));
    rank.synchronize();
    done.push_back(microseconds_since(begin));
  }
  kolo::barrier();
  const auto begin = Clock::now();
  for (int i = 0; i < queued_calls; ++i) way.reduce(bytes);
  rank.synchronize();
  const double in_queue = microseconds_since(begin) / queued_calls;
  const std::string name = fmt::format("nccl-{}-{}-{}", kolo::size(), way.name, bytes);
  measured::print(name + "-host", blocks::median(host), "us");
  measured::print(name + "-done", blocks::median(done), "us");
  measured::print(name + "-in-queue", in_queue, "us");
}

void print_plan() {
  for (const std::int64_t bytes : sizes)
    fmt::print("allreduce of {:>8} B   kolo, blocking, nonblocking, window\n", bytes);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "--plan") {
    print_plan();
    return 0;
  }
  try {
    const kolo::Session session({.flight_recorder_dir = "off"});
    Rank rank;
    int version = 0;
    check(ncclGetVersion(&version));
    if (kolo::rank() == 0)
      fmt::print("GPU tensors of ranks 0-{} use NCCL {}.{}.{}\n", kolo::size() - 1, version / 10000,
                 version % 10000 / 100, version % 100);
    const std::vector<Way> ways = rank.ways();
    for (const std::int64_t bytes : sizes)
      for (const Way& way : ways) measure(rank, way, bytes);
    kolo::barrier();
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench-nccl-cost: {}\n", error.what());
    return 1;
  }
}
