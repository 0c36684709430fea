// Executes batches where their tensors are: on the CPU, or on GPUs over NCCL or by way of the host.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.hpp"
#include "backend/cuda/card.hpp"
#include "backend/cuda/exchange.hpp"
#include "backend/cuda/gpu.hpp"
#include "backend/cuda/staged.hpp"
#include "backend/nccl/nccl_backend.hpp"
#include "base/choices.hpp"

namespace kolo::backend::cuda {

/// Before the ranks of a batch of GPU tensors use their GPUs together for the first time, they
/// meet: they tell each other about them, and all decide alike how their tensors travel. Batches
/// that are started meanwhile are held back, so that the order of all of them stays the same on all
/// ranks.
///
/// Without a GPU tensor it hands everything to the CPU's backend.
class DeviceBackend : public Backend {
 public:
  struct Options {
    GpuOperations operations = GpuOperations::automatic;
    nccl::NcclBackend::Options nccl{};
    std::int64_t chunk_bytes = least_chunk_bytes;  // by way of the host
  };
  /// Looks for NCCL, when there are GPU tensors. May throw BackendError, or give null.
  using FindLibrary = std::function<std::shared_ptr<nccl::Library>()>;

  /// `cpu` and `gpu` outlive this.
  DeviceBackend(Backend& cpu, Gpu& gpu, int rank, FindLibrary find_library, Options options)
      : cpu_(cpu),
        gpu_(gpu),
        rank_(rank),
        find_library_(std::move(find_library)),
        options_(options) {}
  ~DeviceBackend() override;
  DeviceBackend(const DeviceBackend&) = delete;
  DeviceBackend& operator=(const DeviceBackend&) = delete;

  [[nodiscard]] std::unique_ptr<Execution> start(Batch batch) override;

  /// True while batches of GPU tensors run: nobody rings when a GPU is done.
  [[nodiscard]] bool must_poll() const { return executions_ > 0; }

  /// In words; "" before the first meeting.
  [[nodiscard]] const std::string& last_path() const { return last_path_; }

 private:
  class Deferred;
  /// Of the ranks of a batch.
  struct Meeting {
    Meeting(Backend& cpu, const Batch& batch, std::vector<std::byte> card)
        : ranks(batch.ranks), exchange(cpu, batch, 0, std::move(card)) {}

    std::vector<int> ranks;
    Exchange exchange;
  };

  [[nodiscard]] std::unique_ptr<Execution> start_now(Batch batch);
  [[nodiscard]] bool must_meet(const Batch& batch) const;
  void begin_meeting(const Batch& batch);
  /// Goes on with the meeting that is under way, and then with what was held back. True if anything
  /// moved.
  bool advance();
  void end_meeting();
  void find_nccl();
  [[nodiscard]] Card own_card(const Batch& batch);

  Backend& cpu_;
  Gpu& gpu_;
  int rank_;
  FindLibrary find_library_;
  Options options_;
  bool looked_for_nccl_ = false;
  std::string why_no_nccl_{};
  std::optional<nccl::NcclBackend> nccl_{};
  std::map<std::vector<int>, Path> paths_{};
  std::optional<Meeting> meeting_{};
  std::deque<Deferred*> held_back_{};
  std::atomic<int> executions_{0};
  std::string last_path_{};
};

}  // namespace kolo::backend::cuda
