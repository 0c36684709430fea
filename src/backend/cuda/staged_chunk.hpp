// A batch of GPU tensors that travels by way of the host does so in chunks, so that the copies of
// one go on while another is reduced.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.hpp"
#include "backend/cuda/gpu.hpp"
#include "backend/cuda/transfers.hpp"

namespace kolo::backend::cuda {

/// Elements of a member that travel together.
struct Stretch {
  const Member* member = nullptr;
  std::int64_t first = 0;
  std::int64_t elements = 0;
};

/// Cuts a batch whose elements can go apart, alike on all ranks: into chunks of about as many
/// bytes, `least_bytes` or more, and into no more than a batch has numbers for. Any other is one
/// chunk.
[[nodiscard]] std::vector<std::vector<Stretch>> cut_into_chunks(const Batch& batch,
                                                                std::int64_t least_bytes);

/// Its way: device to pinned memory, the CPU's backend, and back.
class StagedChunk {
 public:
  /// Takes part `part` of the batch's sequence. All that is given outlives it.
  StagedChunk(Gpu& gpu, Backend& cpu, const Batch& batch, int rank, std::uint32_t part)
      : gpu_(gpu), cpu_(cpu), batch_(batch), rank_(rank), part_(part) {}
  ~StagedChunk();
  StagedChunk(const StagedChunk&) = delete;
  StagedChunk& operator=(const StagedChunk&) = delete;

  /// Gives its copies to the GPU's stream and queues up with the CPU's backend. Once.
  void begin(std::span<const Stretch> stretches);

  /// Does nothing once it is done.
  [[nodiscard]] Progress step();
  [[nodiscard]] bool is_done() const { return stage_ == Stage::done; }
  /// True once only the way back is left.
  [[nodiscard]] bool is_returning() const { return stage_ >= Stage::returning; }
  [[nodiscard]] Awaited waits_for() const;

 private:
  enum class Stage : std::uint8_t { leaving, host, returning, done };

  /// Of one stretch, on the host.
  struct Place {
    const Member* member = nullptr;
    const void* source = nullptr;  // on the device
    std::int64_t bytes = 0;        // of it
    Member staged{};
    BlockPool<PinnedMemory>::Block input{};
    BlockPool<PinnedMemory>::Block output{};  // if it is another
    void* target = nullptr;                   // of the results, on the device
    std::int64_t arriving = 0;                // bytes of them
  };

  [[nodiscard]] bool reads_input() const;
  void stage(const Stretch& stretch);
  [[nodiscard]] BlockPool<PinnedMemory>::Block take(std::int64_t bytes);
  void* allocate(Place& place, std::span<const std::int64_t> rows);
  void move(const void* from, void* to, std::int64_t bytes, CopyKind kind);
  void bring_back();

  Gpu& gpu_;
  Backend& cpu_;
  const Batch& batch_;
  int rank_;
  std::uint32_t part_;
  Stage stage_ = Stage::leaving;
  std::deque<Place> places_{};  // whose members are pointed to
  Transfers outgoing_{gpu_};
  Transfers incoming_{gpu_};
  Event arrived_{};
  Event returned_{};
  std::unique_ptr<Execution> execution_{};
};

}  // namespace kolo::backend::cuda
