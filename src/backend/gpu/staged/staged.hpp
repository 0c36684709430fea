// Executes a batch of GPU tensors through the memory of the host: for ranks that share a GPU, for
// builds without NCCL, and for what NCCL cannot do.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.hpp"
#include "backend/gpu/runtime/gpu.hpp"

namespace kolo::backend::gpu {

/// Chunks have at least so many bytes: then what each costs on its own is little beside its copies.
inline constexpr std::int64_t min_chunk_bytes = 2 << 20;

/// Device to pinned memory, the CPU's backend, and back, chunk by chunk: a chunk is copied while
/// the one before it is reduced. The steps of one batch overlap with those of the next, too. Takes
/// the parts from 1 on of the batch's sequence. `cpu` and `gpu` outlive the execution.
[[nodiscard]] std::unique_ptr<Execution> make_staged(Gpu& gpu, Backend& cpu, Batch batch, int rank,
                                                     std::int64_t chunk_bytes = min_chunk_bytes);

/// Elements of a tensor that travel together.
struct ElementRange {
  const BatchTensor* tensor = nullptr;
  std::int64_t first = 0;
  std::int64_t elements = 0;
};

/// Cuts a batch whose elements can go apart, alike on all ranks: into chunks of about as many
/// bytes, `min_bytes` or more, and into no more than a batch has numbers for. Any other is one
/// chunk.
[[nodiscard]] std::vector<std::vector<ElementRange>> cut_into_chunks(const Batch& batch,
                                                                     std::int64_t min_bytes);

/// One chunk's path: device to pinned memory, the CPU's backend, and back.
class StagedChunk {
 public:
  /// Takes part `part` of the batch's sequence. All that is given outlives it.
  StagedChunk(Gpu& gpu, Backend& cpu, const Batch& batch, int rank, std::uint32_t part)
      : gpu_(gpu), cpu_(cpu), batch_(batch), rank_(rank), part_(part) {}
  ~StagedChunk();
  StagedChunk(const StagedChunk&) = delete;
  StagedChunk& operator=(const StagedChunk&) = delete;

  /// Gives its copies to the GPU's stream and queues up with the CPU's backend. Once.
  void begin(std::span<const ElementRange> ranges);

  /// Does nothing once it is done.
  [[nodiscard]] Progress step();
  [[nodiscard]] bool is_done() const { return stage_ == Stage::done; }
  /// True once only the way back is left.
  [[nodiscard]] bool is_returning() const { return stage_ >= Stage::returning; }
  [[nodiscard]] Awaited waits_for() const;

 private:
  enum class Stage : std::uint8_t { leaving, host, returning, done };

  /// An element range on its way through the host.
  struct StagedRange {
    const BatchTensor* tensor = nullptr;
    const void* source = nullptr;  // on the device
    std::int64_t bytes = 0;        // of it
    BatchTensor staged{};
    BlockPool<PinnedMemory>::Block input{};
    BlockPool<PinnedMemory>::Block output{};  // if it is another
    void* target = nullptr;                   // of the results, on the device
    std::int64_t arriving = 0;                // bytes of them
  };

  [[nodiscard]] bool reads_input() const;
  void stage(const ElementRange& range);
  [[nodiscard]] BlockPool<PinnedMemory>::Block take(std::int64_t bytes);
  void* allocate(StagedRange& item, std::span<const std::int64_t> rows);
  void move(const void* from, void* to, std::int64_t bytes, CopyKind kind);
  void bring_back();

  Gpu& gpu_;
  Backend& cpu_;
  const Batch& batch_;
  int rank_;
  std::uint32_t part_;
  Stage stage_ = Stage::leaving;
  std::deque<StagedRange> staged_{};  // whose tensors are pointed to
  TransferLaunch outgoing_{gpu_};
  TransferLaunch incoming_{gpu_};
  Event arrived_{};
  Event returned_{};
  std::unique_ptr<Execution> execution_{};
};

}  // namespace kolo::backend::gpu
