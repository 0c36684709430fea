// SPDX-License-Identifier: Apache-2.0
// Random programs with every kind of operation, on CPU and GPU tensors in turn: among ranks with a
// GPU each, among ranks that share one, and without NCCL. The GPUs work in random order.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <random>

#include "../shm/shm_program.hpp"
#include "gpu_world.hpp"
#include "kolo/cuda.hpp"

namespace kolo::internal::backend {
namespace {

bool has_tensors(const Step& step) {
  if (step.lengths.empty()) return false;
  switch (step.kind.type) {
    case OperationType::allreduce:
    case OperationType::reducescatter:
    case OperationType::allgather:
    case OperationType::alltoall:
    case OperationType::broadcast: return true;
    default: return false;
  }
}

std::size_t bytes_of(const BatchTensor& member, std::int64_t rows) {
  return static_cast<std::size_t>(rows * member.row_elements * signed_size_of(member.dtype));
}

/// A task's tensors on a GPU: its inputs are copied there by the user's stream, and the results
/// back once they are there.
class OnGpu {
 public:
  OnGpu(GpuWorld& world, int rank, const Task& task)
      : cuda_(world.rank(rank).cuda), batch_(task.batch()) {
    batch_.kind.device = gpu_zero;
    for (const BatchTensor*& member : batch_.tensors) {
      Tensor& tensor = tensors_.emplace_back();
      tensor.host = member;
      tensor.device = *member;
      place(world, rank, tensor);
      tensor.device.ready = world.mark(rank);
      member = &tensor.device;
    }
  }
  ~OnGpu() {
    for (const auto& tensor : tensors_)
      for (std::byte* memory : tensor.owned) cuda_->free_memory(memory);
  }
  OnGpu(const OnGpu&) = delete;
  OnGpu& operator=(const OnGpu&) = delete;

  [[nodiscard]] const Batch& batch() const { return batch_; }

  void bring_back() {
    for (Tensor& tensor : tensors_) {
      void* const to =
          tensor.device.allocate ? tensor.host->allocate(tensor.rows) : tensor.host->output;
      if (tensor.bytes > 0) std::memcpy(to, tensor.output, tensor.bytes);
    }
  }

 private:
  struct Tensor {
    const BatchTensor* host = nullptr;
    BatchTensor device{};
    std::vector<std::byte*> owned{};
    std::byte* output = nullptr;
    std::size_t bytes = 0;             // size of the output
    std::vector<std::int64_t> rows{};  // passed to the allocator
  };

  std::byte* make(Tensor& tensor, std::size_t bytes) {
    return tensor.owned.emplace_back(cuda_->make_memory(bytes));
  }

  void place(GpuWorld& world, int rank, Tensor& tensor) {
    const BatchTensor& host = *tensor.host;
    const std::size_t bytes = bytes_of(host, host.rows);
    std::byte* const input = make(tensor, bytes);
    world.produce(rank, [=, from = host.input] {
      if (bytes > 0) std::memcpy(input, from, bytes);
      return true;
    });
    tensor.device.input = input;
    if (tensor.device.allocate) {
      tensor.device.allocate = [this, &tensor](std::span<const std::int64_t> rows) -> void* {
        tensor.rows.assign(rows.begin(), rows.end());
        tensor.bytes =
            bytes_of(tensor.device, std::accumulate(rows.begin(), rows.end(), std::int64_t{0}));
        tensor.output = make(tensor, tensor.bytes);
        // Somebody still used the memory on the stream that the allocator is told.
        cuda_->enqueue(CudaStreamScope::current(), [output = tensor.output, size = tensor.bytes] {
          std::fill_n(output, size, std::byte{0x77});
          return true;
        });
        return tensor.output;
      };
      return;
    }
    std::int64_t rows = host.rows;
    if (batch_.kind.type == OperationType::reducescatter) {
      const auto place = std::ranges::find(batch_.ranks, rank) - batch_.ranks.begin();
      rows =
          reducescatter_rows(rows, static_cast<int>(place), static_cast<int>(batch_.ranks.size()));
    }
    tensor.bytes = bytes_of(host, rows);
    tensor.output = host.input == host.output ? input : make(tensor, tensor.bytes);
    tensor.device.output = tensor.output;
  }

  std::shared_ptr<FakeCuda> cuda_;
  Batch batch_;
  std::deque<Tensor> tensors_{};
};

/// One rank, which has a few batches under way at once.
class Player {
 public:
  Player(GpuWorld& world, int rank, const std::vector<Step>& program) : world_(world), rank_(rank) {
    for (const Step& step : program)
      if (std::ranges::find(step.ranks, rank) != step.ranks.end()) steps_.push_back(&step);
  }

  [[nodiscard]] bool done() const { return next_ == steps_.size() && running_.empty(); }

  void play() {
    if (next_ < steps_.size() && running_.size() < max_running) start(*steps_[next_++]);
    for (auto one = running_.begin(); one != running_.end();) {
      if (one->execution->step() != Progress::done) {
        ++one;
        continue;
      }
      if (one->on_gpu) one->on_gpu->bring_back();
      EXPECT_TRUE(one->task->holds()) << "rank " << rank_ << ", batch " << one->sequence;
      one = running_.erase(one);
    }
  }

 private:
  static constexpr std::size_t max_running = 3;
  struct Running {
    std::uint64_t sequence;
    std::unique_ptr<Task> task;
    std::unique_ptr<OnGpu> on_gpu;
    std::unique_ptr<Execution> execution;
  };

  void start(const Step& step) {
    Running running{step.sequence, make_task(step, rank_), nullptr, nullptr};
    if (has_tensors(step) && step.salt % 4 != 0)
      running.on_gpu = std::make_unique<OnGpu>(world_, rank_, *running.task);
    Batch batch = running.on_gpu ? running.on_gpu->batch() : running.task->batch();
    running.execution = world_.rank(rank_).backend->start(std::move(batch));
    running_.push_back(std::move(running));
  }

  GpuWorld& world_;
  int rank_;
  std::vector<const Step*> steps_{};
  std::size_t next_ = 0;
  std::deque<Running> running_{};
};

void play(const WorldOptions& options) {
  SCOPED_TRACE(testing::Message() << options.ranks << " ranks, seed " << options.seed);
  const std::vector<Step> program =
      random_program({.ranks = options.ranks, .steps = 40}, options.seed);
  GpuWorld world(options);
  std::deque<Player> players;
  for (int rank = 0; rank < options.ranks; ++rank) players.emplace_back(world, rank, program);
  std::mt19937_64 random(options.seed);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  const auto done = [&] {
    return std::ranges::all_of(players, [](const Player& player) { return player.done(); });
  };
  while (!done()) {
    Player& player = players[random() % players.size()];
    if (!player.done()) player.play();
    world.rank(static_cast<int>(random() % players.size())).cuda->advance();
    ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "it hangs";
  }
}

class GpuPrograms : public testing::TestWithParam<int> {};

TEST_P(GpuPrograms, OverNccl) {
  for (std::uint64_t seed = 1; seed <= 12; ++seed) play({.ranks = GetParam(), .seed = seed});
}

TEST_P(GpuPrograms, OnASharedGpu) {
  for (std::uint64_t seed = 21; seed <= 32; ++seed)
    play({.ranks = GetParam(),
          .share_a_gpu = true,
          .seed = seed,
          .backend = {.chunk_bytes = seed % 2 == 0 ? 700 : gpu::min_chunk_bytes}});
}

TEST_P(GpuPrograms, WithoutNccl) {
  for (std::uint64_t seed = 41; seed <= 46; ++seed)
    play({.ranks = GetParam(), .with_nccl = false, .seed = seed});
}

INSTANTIATE_TEST_SUITE_P(Ranks, GpuPrograms, testing::Values(1, 2, 3, 4));

}  // namespace
}  // namespace kolo::internal::backend
