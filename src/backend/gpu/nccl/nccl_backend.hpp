// SPDX-License-Identifier: Apache-2.0
// Executes batches of GPU tensors among ranks with a GPU each.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "backend/backend.hpp"
#include "backend/gpu/nccl/communicator.hpp"
#include "backend/gpu/nccl/execution.hpp"
#include "backend/gpu/nccl/library.hpp"
#include "backend/gpu/runtime/gpu.hpp"
#include "base/settings.hpp"

namespace kolo::internal::backend::nccl {

/// A communicator for each list of ranks that take part. Executions must be gone before it.
class NcclBackend : public Backend {
 public:
  /// `cpu` carries the numbers that ranks exchange beforehand, as parts 0 and 1 of a batch's
  /// sequence. After `exit_timeout`, the destructor leaves communicators behind. `settings`
  /// outlives this.
  NcclBackend(std::shared_ptr<Library> library, gpu::Gpu& gpu, Backend& cpu, int rank,
              const Settings& settings, std::chrono::nanoseconds exit_timeout)
      : gpu_(gpu),
        cpu_(cpu),
        rank_(rank),
        settings_(settings),
        group_(std::move(library), gpu, exit_timeout) {}
  /// Destroys the communicators.
  ~NcclBackend() override;
  NcclBackend(const NcclBackend&) = delete;
  NcclBackend& operator=(const NcclBackend&) = delete;

  [[nodiscard]] Library& library() { return group_.library(); }
  [[nodiscard]] std::shared_ptr<Library> shared_library() { return group_.shared_library(); }

  /// False if NCCL does not support the batch. The same on all ranks.
  [[nodiscard]] static bool can_execute(const Batch& batch);

  /// True if the communicator of these ranks can be created from another that has them all. The
  /// same on all of them. Else they need an id.
  [[nodiscard]] bool has_parent(const std::vector<int>& ranks);

  /// Before the first batch of these ranks. All of them call it, at the same place among their
  /// batches, with the same id. With a parent the id is not used.
  void connect(const std::vector<int>& ranks, const UniqueId& id);

  /// After `connect` for the batch's ranks.
  [[nodiscard]] std::unique_ptr<Execution> start(Batch batch) override;

  /// Aborts all communicators: one that waits may block the others.
  void abort() noexcept { group_.abort(); }

 private:
  /// A communicator and what is derived from its batches, which is the same on all of its ranks.
  struct Entry {
    template <typename... Arguments>
    explicit Entry(Arguments&&... arguments)
        : communicator(std::forward<Arguments>(arguments)...) {}

    Communicator communicator;
    bool has_batches = false;           // so all of its ranks make it, and others can be made of it
    std::vector<int> lacks_ranks_of{};  // the set; empty if a batch of all its set's ranks used it
    // Of one that lacks ranks:
    std::uint64_t used_after = 0;  // so many joins
    int place = 0;                 // among those of its set between the same joins, from 0 on
  };
  using Entries = std::map<std::vector<int>, Entry>;

  [[nodiscard]] Entries::iterator parent_of(const std::vector<int>& ranks);
  void note_use(Entry& entry, const Batch& batch);
  [[nodiscard]] static bool is_over(const Entry& entry, const Batch& batch);
  [[nodiscard]] std::vector<Communicator*> to_retire(const Batch& batch);

  gpu::Gpu& gpu_;
  Backend& cpu_;
  int rank_;
  const Settings& settings_;
  LaunchOrder order_{};
  CommunicatorGroup group_;
  Entries entries_{};
};

}  // namespace kolo::internal::backend::nccl
