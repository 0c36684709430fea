#include "backend/cuda/staged.hpp"

#include <deque>
#include <utility>
#include <vector>

#include "backend/cuda/staged_chunk.hpp"

namespace kolo::backend::cuda {
namespace {

/// All chunks' copies to the host are given to the GPU at once, and all queue up with the CPU's
/// backend, so that the order of its batches is the same on all ranks. There they take turns.
class Staged : public Execution {
 public:
  Staged(Gpu& gpu, Backend& cpu, Batch given, int rank, std::int64_t chunk_bytes)
      : batch_(std::move(given)) {
    gpu.await(batch_.members, gpu.stream());
    std::uint32_t part = 0;
    for (const std::vector<Stretch>& stretches : cut_into_chunks(batch_, chunk_bytes))
      chunks_.emplace_back(gpu, cpu, batch_, rank, ++part).begin(stretches);
  }

  Progress step() override {
    Progress progress = Progress::waiting;
    for (StagedChunk& chunk : chunks_) {
      if (chunk.step() != Progress::waiting) progress = Progress::moved;
      if (!chunk.is_returning()) break;
    }
    while (!chunks_.empty() && chunks_.front().is_done()) chunks_.pop_front();
    return chunks_.empty() ? Progress::done : progress;
  }

  [[nodiscard]] Awaited waits_for() const override {
    for (const StagedChunk& chunk : chunks_)
      if (!chunk.is_returning()) return chunk.waits_for();
    return chunks_.empty() ? Awaited{} : chunks_.front().waits_for();
  }

 private:
  Batch batch_;
  std::deque<StagedChunk> chunks_{};  // that are not done
};

}  // namespace

std::unique_ptr<Execution> make_staged(Gpu& gpu, Backend& cpu, Batch batch, int rank,
                                       std::int64_t chunk_bytes) {
  return std::make_unique<Staged>(gpu, cpu, std::move(batch), rank, chunk_bytes);
}

}  // namespace kolo::backend::cuda
