// SPDX-License-Identifier: Apache-2.0
// Executes batches of GPU tensors among ranks with a GPU each.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <vector>

#include "backend/backend.hpp"
#include "backend/gpu/nccl/communicator.hpp"
#include "backend/gpu/nccl/execution.hpp"
#include "backend/gpu/nccl/library.hpp"
#include "backend/gpu/runtime/gpu.hpp"

namespace kolo::internal::backend::nccl {

/// A communicator for each list of ranks that take part. Executions must be gone before it.
class NcclBackend : public Backend {
 public:
  struct Options {
    std::chrono::nanoseconds init_timeout = std::chrono::minutes(5);
  };

  /// `cpu` carries the numbers that ranks exchange beforehand, as parts 0 and 1 of a batch's
  /// sequence.
  NcclBackend(std::shared_ptr<Library> library, gpu::Gpu& gpu, Backend& cpu, int rank,
              Options options)
      : library_(std::move(library)), gpu_(gpu), cpu_(cpu), rank_(rank), options_(options) {}
  /// Destroys the communicators.
  ~NcclBackend() override = default;

  [[nodiscard]] Library& library() { return *library_; }

  /// False if NCCL does not support the batch. The same on all ranks.
  [[nodiscard]] static bool can_execute(const Batch& batch);

  /// True if the communicator of these ranks can be created from another that has them all. The
  /// same on all of them. Else they need an id.
  [[nodiscard]] bool has_parent(const std::vector<int>& ranks) const;

  /// Begins to create the communicator of these ranks. All of them call it, at the same place among
  /// their batches, with the same id. With a parent the id is not used.
  void connect(const std::vector<int>& ranks, const UniqueId& id);

  /// After `connect` for the batch's ranks.
  [[nodiscard]] std::unique_ptr<Execution> start(Batch batch) override;

  /// Aborts all communicators: one that waits may block the others.
  void abort() noexcept;

 private:
  using Communicators = std::map<std::vector<int>, Communicator>;

  [[nodiscard]] Communicators::const_iterator parent_of(const std::vector<int>& ranks) const;

  std::shared_ptr<Library> library_;
  gpu::Gpu& gpu_;
  Backend& cpu_;
  int rank_;
  Options options_;
  LaunchOrder order_{};
  Worker worker_{};
  Communicators communicators_{};
};

}  // namespace kolo::internal::backend::nccl
