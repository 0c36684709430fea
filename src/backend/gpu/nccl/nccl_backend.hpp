// SPDX-License-Identifier: Apache-2.0
// Executes batches of tensors on GPUs among ranks that each have a GPU, and selects the path of the
// GPU tensors of a set of ranks.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "backend/backend.hpp"
#include "backend/gpu/nccl/communicator.hpp"
#include "backend/gpu/nccl/execution.hpp"
#include "backend/gpu/nccl/library.hpp"
#include "backend/gpu/runtime/gpu.hpp"
#include "base/settings.hpp"

namespace kolo::internal::backend::nccl {

/// The information of one rank. Texts are terminated by zero.
struct GpuInfo {
  std::array<char, 16> uuid{};
  std::array<char, 32> pci_bus_id{};
  std::array<char, 160> why_no_nccl{};  // "" if NCCL is available
  std::int32_t nccl_version = 0;
  std::int32_t device = 0;
  std::int32_t may_share_gpu = 0;  // 1 if NCCL allows several ranks on one GPU
  UniqueId unique_id{};            // that of the first rank is used
};
static_assert(std::is_trivially_copyable_v<GpuInfo>);  // travels as bytes

/// How a set of ranks exchanges GPU tensors. The same on all of these ranks.
struct GpuPath {
  bool nccl = false;
  std::string why_not{};  // the reason, with the ranks concerned
};

/// `infos` has one element for each of `ranks`.
[[nodiscard]] GpuPath select_path(std::span<const int> ranks, std::span<const GpuInfo> infos);

/// Has a communicator for each list of participating ranks. Must outlive its executions.
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

  /// True if a communicator of these ranks can be created from a larger one. The same on all of
  /// these ranks. If false, they need an id.
  [[nodiscard]] bool has_parent(const std::vector<int>& ranks);

  /// Precedes the first batch of these ranks. All of them call it with the same id, at the same
  /// place among their batches. With a parent, the id is not used.
  void connect(const std::vector<int>& ranks, const UniqueId& id);

  /// Requires `connect` for the batch's ranks.
  [[nodiscard]] std::unique_ptr<Execution> start(Batch batch) override;

  /// Aborts all communicators, since one that waits may block the others.
  void abort() noexcept { group_.abort(); }

 private:
  /// A communicator, and values derived from its batches. They are the same on all of its ranks.
  struct Entry {
    template <typename... Arguments>
    explicit Entry(Arguments&&... arguments)
        : communicator(std::forward<Arguments>(arguments)...) {}

    Communicator communicator;
    /// A communicator of the same ranks: graphs are replayed at any time, and NCCL wants the calls
    /// of a communicator in one order on all ranks.
    std::optional<Communicator> for_graphs{};
    bool has_batches = false;  // all ranks create it, so others can be derived from it
    /// The ranks of the process set, if the communicator lacks some of them; empty if it has served
    /// a batch of all.
    std::vector<int> lacks_ranks_of{};
    // The next two are valid if the communicator lacks ranks.
    std::uint64_t used_after = 0;  // the number of joins before its last use
    int place = 0;  // index among the communicators of the set between the same joins
  };
  using Entries = std::map<std::vector<int>, Entry>;

  [[nodiscard]] Entries::iterator parent_of(const std::vector<int>& ranks);
  void note_use(Entry& entry, const Batch& batch);
  [[nodiscard]] static bool is_over(const Entry& entry, const Batch& batch);
  [[nodiscard]] std::vector<Communicator*> to_retire(const Batch& batch);
  /// The communicator for the batch, if it is for graphs and NCCL can make one, else null.
  [[nodiscard]] Communicator* for_graphs(Entry& entry, const Batch& batch);

  gpu::Gpu& gpu_;
  Backend& cpu_;
  int rank_;
  const Settings& settings_;
  LaunchOrder order_{};
  CommunicatorGroup group_;
  Entries entries_{};
};

}  // namespace kolo::internal::backend::nccl
