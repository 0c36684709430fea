// SPDX-License-Identifier: Apache-2.0
// Selects the backend for each batch.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.hpp"
#include "backend/gpu/nccl/nccl_backend.hpp"
#include "backend/gpu/runtime/gpu.hpp"
#include "backend/gpu/staged/staged.hpp"
#include "backend/internode/internode_backend.hpp"
#include "backend/mpi/mpi_backend.hpp"
#include "backend/shm/shm_backend.hpp"
#include "backend/small_allgather.hpp"
#include "base/settings.hpp"
#include "messenger/messenger.hpp"

namespace kolo::internal::backend {

/// The backends for batches of CPU tensors.
enum class Route : std::uint8_t {
  shared_memory,  ///< Memory of this host.
  inter_node,     ///< Memory of each host, and the network between the owners of slices.
  mpi,            ///< Messages from rank to rank.
};

/// Routes batches of CPU tensors. A batch takes the first route that can execute it:
///
/// 1. Shared memory, if all its ranks are on this host: it is the fastest, and no rank has to poll.
///    Adasum only if there is no network, since messages need less arithmetic.
/// 2. Inter-node, for an allreduce except Adasum, a reducescatter, an allgather or a broadcast of
///    more than a message whose ranks are on several hosts: the network carries the data of a host
///    once, not once for each of its ranks. An allgather takes this route only if a host has
///    several of its ranks, or if there are more than 8 hosts. A rank that shares no memory counts
///    as a host. Not used if there are at most 8 hosts with one rank each.
/// 3. MPI, for Adasum and for everything else between hosts.
class CpuRouter : public Backend {
 public:
  /// `messenger` must outlive the router. Null: there is no network, and all ranks share memory.
  explicit CpuRouter(messenger::Messenger* messenger) : messenger_(messenger) {
    if (messenger_ != nullptr) mpi_.emplace(*messenger_);
  }

  /// Enables shared memory between the ranks of this host.
  void use_memory(ShmBackend& memory) { memory_ = &memory; }
  /// Enables the inter-node backend, on all ranks. `node_of` maps each rank to the lowest rank with
  /// which it shares memory, possibly itself.
  void use_hosts(const std::vector<int>& node_of);

  /// The route is the same on all ranks of the batch.
  [[nodiscard]] Route route_of(const Batch& batch) const;
  [[nodiscard]] std::unique_ptr<Execution> start(Batch batch) override;
  [[nodiscard]] std::unique_ptr<Execution> prepare(const Batch& batch) override;
  void abandon() noexcept override {
    if (memory_ != nullptr) memory_->abandon();
    if (messenger_ != nullptr) messenger_->close(std::chrono::nanoseconds(0));
  }
  [[nodiscard]] std::uint64_t sequence_span() const override {
    return mpi_ ? mpi_->sequence_span() : Backend::sequence_span();
  }

 private:
  messenger::Messenger* messenger_;
  std::optional<MpiBackend> mpi_{};
  ShmBackend* memory_ = nullptr;
  std::optional<InterNodeBackend> inter_node_{};
};

/// Routes batches of GPU tensors, and passes batches of CPU tensors to the CPU's router. A batch of
/// GPU tensors takes the first route that can execute it:
///
/// 1. NCCL, if every rank of the batch has a GPU of its own and the same version of NCCL, and NCCL
///    supports the operation for the batch's types.
/// 2. Staging, for ranks that share a GPU, builds without NCCL, and batches that NCCL does not
///    support.
///
/// Before ranks use their GPUs together for the first time, they exchange a `GpuInfo` each, so that
/// all select the same route. Batches that are started meanwhile are held back, to keep the order
/// of batches the same on all ranks. CpuRouter is a separate class because the chunks of staged
/// batches go to it directly: they must not queue behind batches that are held back.
class Router : public Backend {
 public:
  struct Options {
    std::chrono::nanoseconds exit_timeout = std::chrono::seconds(10);  // the time for NCCL to end
    std::int64_t chunk_bytes = gpu::min_chunk_bytes;                   // chunks of staged batches
  };
  /// Loads NCCL at the first GPU tensor. May throw BackendError, or return null.
  using FindLibrary = std::function<std::shared_ptr<nccl::Library>()>;

  /// `cpu`, `gpu` and `settings` outlive this.
  Router(Backend& cpu, gpu::Gpu& gpu, int rank, FindLibrary find_library, const Settings& settings,
         const Options& options)
      : cpu_(cpu),
        gpu_(gpu),
        rank_(rank),
        find_library_(std::move(find_library)),
        settings_(settings),
        options_(options) {}
  ~Router() override;
  Router(const Router&) = delete;
  Router& operator=(const Router&) = delete;

  [[nodiscard]] std::unique_ptr<Execution> start(Batch batch) override;
  [[nodiscard]] std::unique_ptr<Execution> prepare(const Batch& batch) override;
  /// Aborts NCCL's communicators. All ranks do so at the same time, since aborts wait for each
  /// other.
  void abandon() noexcept override;
  [[nodiscard]] std::uint64_t sequence_span() const override { return cpu_.sequence_span(); }

  /// True while batches of GPU tensors wait for their launch: no doorbell rings when NCCL or a copy
  /// to the host is done.
  [[nodiscard]] bool must_poll() const { return to_launch_ > 0; }

 private:
  class Deferred;
  /// The exchange of GpuInfo between the ranks of a batch.
  struct Agreement {
    Agreement(Backend& cpu, const Batch& batch, const nccl::GpuInfo& info)
        : ranks(batch.ranks), infos(cpu, batch, 0, std::as_bytes(std::span(&info, 1))) {}

    std::vector<int> ranks;
    SmallAllgather infos;
  };

  /// Loads NCCL and creates a unique id before an agreement begins. Both take a long time, so a
  /// thread does it.
  struct Preparation;

  [[nodiscard]] std::unique_ptr<Execution> start_now(Batch batch);
  /// Starts a Preparation in a thread.
  void begin_to_prepare(const Batch& batch);
  /// Rethrows an exception of the preparation.
  void begin_agreement(const Batch& batch);
  /// Advances the current preparation and agreement, then starts batches that were held back. True
  /// if there was progress. An exception is kept for the first of these batches, whose next step
  /// throws it.
  bool advance();
  /// The same, but throws the exception.
  bool advance_first();
  void end_agreement();
  [[nodiscard]] nccl::GpuInfo own_info();

  Backend& cpu_;
  gpu::Gpu& gpu_;
  int rank_;
  FindLibrary find_library_;
  const Settings& settings_;
  Options options_;
  bool looked_for_nccl_ = false;
  std::string why_no_nccl_{};
  std::optional<nccl::NcclBackend> nccl_{};
  std::map<std::vector<int>, nccl::GpuPath> paths_{};
  std::shared_ptr<Preparation> preparation_{};
  nccl::Worker preparer_{};
  std::optional<Agreement> agreement_{};
  std::deque<Deferred*> held_back_{};
  int gpu_executions_ = 0;
  std::atomic<int> to_launch_{0};  // executions that are not launched
};

}  // namespace kolo::internal::backend
