// SPDX-License-Identifier: Apache-2.0
// Ranks of one host with GPUs, all of them doubles, in one process and driven by one thread.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "../doubles/fake_cuda.hpp"
#include "../doubles/fake_nccl.hpp"
#include "../shm/shm_host.hpp"
#include "backend/router/router.hpp"
#include "kolo/error.hpp"

namespace kolo::internal::backend {

inline constexpr Device gpu_zero{DeviceType::cuda, 0};

struct WorldOptions {
  int ranks = 2;
  bool share_a_gpu = false;
  bool with_nccl = true;
  std::string nccl_error{};    // error of the search for NCCL, if not empty
  bool nccl_derives = true;    // true since NCCL 2.27
  bool leaves_memory = false;  // leaves memory and streams unreleased
  std::uint64_t seed = 1;
  Settings settings{};
  Router::Options backend{};
};

/// A double of NCCL before 2.27.
class NcclBefore227 : public FakeNccl {
 public:
  using FakeNccl::FakeNccl;
  bool can_derive() override { return false; }
};

class GpuWorld {
 public:
  struct Rank {
    std::shared_ptr<FakeCuda> cuda{};
    std::shared_ptr<FakeNccl> nccl{};
    std::unique_ptr<gpu::Gpu> gpu{};
    std::unique_ptr<Router> backend{};
    gpu::StreamHandle stream = nullptr;  // the user's stream
  };

  explicit GpuWorld(const WorldOptions& options)
      : settings_(options.settings),
        host_(numbers(options.ranks), piece_bytes),
        leaves_memory_(options.leaves_memory) {
    for (int rank = 0; rank < options.ranks; ++rank) {
      Rank& made = ranks_.emplace_back();
      made.cuda = std::make_shared<FakeCuda>(std::vector{options.share_a_gpu ? 0 : rank},
                                             options.seed + static_cast<std::uint64_t>(rank));
      made.nccl = options.nccl_derives ? std::make_shared<FakeNccl>(nccl_, made.cuda)
                                       : std::make_shared<NcclBefore227>(nccl_, made.cuda);
      made.gpu = std::make_unique<gpu::Gpu>(made.cuda);
      made.backend = std::make_unique<Router>(
          host_.backend(rank), *made.gpu, rank,
          [nccl = made.nccl, with = options.with_nccl,
           error = options.nccl_error]() -> std::shared_ptr<nccl::Library> {
            if (!error.empty()) throw BackendError(error);
            return with ? nccl : nullptr;
          },
          settings_, options.backend);
    }
  }
  /// Ends all ranks, and checks for complaints. Ranks wait for each other when they destroy their
  /// communicators.
  ~GpuWorld() {
    std::vector<std::thread> threads;
    for (Rank& rank : ranks_) {
      if (rank.stream != nullptr) rank.cuda->destroy_stream(rank.stream);
      threads.emplace_back([&rank] { rank.backend.reset(); });
    }
    for (std::thread& thread : threads) thread.join();
    for (Rank& rank : ranks_) rank.gpu.reset();
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      for (const std::string& complaint : ranks_[i].cuda->complaints())
        if (!leaves_memory_ || !complaint.ends_with(" are left"))
          ADD_FAILURE() << "rank " << i << ": " << complaint;
      EXPECT_TRUE(leaves_memory_ || !ranks_[i].nccl->any()) << "rank " << i;
    }
    for (const std::string& complaint : nccl_->complaints()) ADD_FAILURE() << complaint;
  }
  GpuWorld(const GpuWorld&) = delete;
  GpuWorld& operator=(const GpuWorld&) = delete;

  [[nodiscard]] Rank& rank(int number) { return ranks_[static_cast<std::size_t>(number)]; }
  [[nodiscard]] int size() const { return static_cast<int>(ranks_.size()); }
  [[nodiscard]] static std::vector<int> numbers(int count) {
    std::vector<int> all(static_cast<std::size_t>(count));
    std::iota(all.begin(), all.end(), 0);
    return all;
  }

  /// Work that the rank's user gives to a stream, and a mark for later work.
  void produce(int number, FakeCuda::Work work) {
    Rank& own = rank(number);
    if (own.stream == nullptr) own.stream = own.cuda->create_stream();
    own.cuda->enqueue(own.stream, std::move(work));
  }
  [[nodiscard]] std::shared_ptr<const gpu::ReadyMark> mark(int number) {
    return rank(number).gpu->mark(gpu_zero, rank(number).stream);
  }

  /// Steps all executions until they are done, and advances the GPUs. Throws their exceptions.
  /// Returns false if that takes too long.
  [[nodiscard]] bool finish(std::vector<std::unique_ptr<Execution>>& running) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    for (bool all_done = false; !all_done;) {
      all_done = true;
      for (auto& execution : running) {
        if (execution == nullptr) continue;
        all_done = false;
        if (execution->step() == Progress::done) execution.reset();
      }
      for (Rank& one : ranks_) one.cuda->advance();
      if (std::chrono::steady_clock::now() > deadline) return false;
    }
    return true;
  }

 private:
  static constexpr std::int64_t piece_bytes = 4096;

  std::shared_ptr<FakeNcclWorld> nccl_ = std::make_shared<FakeNcclWorld>();
  const Settings settings_;
  ShmHost host_;
  bool leaves_memory_;
  std::vector<Rank> ranks_{};
};

/// Tensors of one rank in a batch: the i-th has `lengths[i]` elements, which its user's stream
/// fills. Results go to other memory.
template <typename T>
class GpuTensors {
 public:
  template <typename Value>
  GpuTensors(GpuWorld& world, int rank, const std::vector<std::int64_t>& lengths, Value value)
      : GpuTensors(world.rank(rank).cuda) {
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      const std::size_t bytes = static_cast<std::size_t>(lengths[i]) * sizeof(T);
      T* const input = reinterpret_cast<T*>(cuda_->make_memory(bytes));
      T* const output = reinterpret_cast<T*>(cuda_->make_memory(bytes));
      members_.push_back({.input = input, .output = output, .rows = lengths[i]});
      world.produce(rank, [=, length = lengths[i]] {
        for (std::int64_t k = 0; k < length; ++k) input[k] = value(i, k);
        return true;
      });
    }
    for (BatchTensor& member : members_) member.ready = world.mark(rank);
  }
  ~GpuTensors() {
    for (const BatchTensor& member : members_) {
      cuda_->free_memory(static_cast<std::byte*>(const_cast<void*>(member.input)));
      cuda_->free_memory(static_cast<std::byte*>(member.output));
    }
  }
  GpuTensors(GpuTensors&& other) noexcept = default;
  GpuTensors& operator=(GpuTensors&&) = delete;
  GpuTensors(const GpuTensors&) = delete;
  GpuTensors& operator=(const GpuTensors&) = delete;

  void set_type(DType dtype) {
    for (BatchTensor& member : members_) member.dtype = dtype;
  }
  [[nodiscard]] const T* output(std::size_t i) const {
    return static_cast<const T*>(members_[i].output);
  }
  void add_to(Batch& batch) const {
    for (const BatchTensor& member : members_) batch.tensors.push_back(&member);
  }

 private:
  explicit GpuTensors(std::shared_ptr<FakeCuda> cuda) : cuda_(std::move(cuda)) {}

  std::shared_ptr<FakeCuda> cuda_;
  std::vector<BatchTensor> members_{};
};

}  // namespace kolo::internal::backend
