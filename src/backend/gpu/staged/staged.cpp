// SPDX-License-Identifier: Apache-2.0
#include "backend/gpu/staged/staged.hpp"

#include <algorithm>
#include <deque>
#include <limits>
#include <memory>
#include <numeric>
#include <span>
#include <utility>

#include "backend/batch.hpp"
#include "base/dtype.hpp"
#include "kolo/cuda.hpp"

namespace kolo::internal::backend::gpu {
namespace {

/// Shorter tensors are moved by the kernel, with few launches for a chunk; longer ones by the copy
/// engine.
constexpr std::int64_t min_bytes_copied = 256 << 10;

constexpr std::int64_t max_chunks = Batch::parts - 1;  // part 0 is for agreements

/// False for operations that cannot be divided by elements: Adasum needs whole tensors, and others
/// need whole rows.
bool can_go_apart(const Descriptor& kind) {
  return traits_of(kind.type).splits && kind.op != ReduceOp::adasum;
}

/// Takes one chunk from the device to pinned memory, through the CPU's backend, and back.
class StagedChunk {
 public:
  /// The chunk runs as part `part` of the batch's sequence. All arguments must outlive it.
  StagedChunk(Gpu& gpu, Backend& cpu, const Batch& batch, int rank, std::uint32_t part)
      : gpu_(gpu), cpu_(cpu), batch_(batch), rank_(rank), part_(part) {}
  ~StagedChunk() {
    if (stage_ == Stage::done) return;
    for (StagedRange& item : staged_) {
      item.input.abandon();
      item.output.abandon();
    }
  }
  StagedChunk(const StagedChunk&) = delete;
  StagedChunk& operator=(const StagedChunk&) = delete;

  /// Launches the copies on the GPU's stream and starts a batch on the CPU's backend. Call it once.
  void begin(std::span<const ElementRange> ranges) {
    for (const ElementRange& range : ranges) stage(range);
    if (reads_input())
      for (const StagedRange& item : staged_)
        move(item.source, item.input.data(), item.bytes, CopyKind::to_host);
    outgoing_.launch(gpu_, gpu_.stream());
    arrived_ = make_event(gpu_.runtime());
    gpu_.runtime()->record(arrived_.get(), gpu_.stream());
    Batch host = batch_;
    host.kind.device = {};
    host.part = part_;
    host.tensors.clear();
    for (const StagedRange& item : staged_) host.tensors.push_back(&item.staged);
    execution_ = cpu_.start(std::move(host));
  }

  /// Has no effect once the chunk is done.
  [[nodiscard]] Progress step() {
    switch (stage_) {
      case Stage::leaving:
        if (!gpu_.runtime()->is_done(arrived_.get())) return Progress::waiting;
        stage_ = Stage::host;
        return Progress::moved;
      case Stage::host: {
        const Progress progress = execution_->step();
        if (progress != Progress::done) return progress;
        bring_back();
        stage_ = Stage::returning;
        return Progress::moved;
      }
      case Stage::returning:
        if (!gpu_.runtime()->is_done(returned_.get())) return Progress::waiting;
        stage_ = Stage::done;
        return Progress::moved;
      case Stage::done: break;
    }
    return Progress::waiting;
  }
  [[nodiscard]] bool is_done() const { return stage_ == Stage::done; }
  /// True once only the copies back remain.
  [[nodiscard]] bool is_returning() const { return stage_ >= Stage::returning; }

  [[nodiscard]] Awaited waits_for() const {
    switch (stage_) {
      case Stage::leaving: return {{}, "the GPU to make the tensors and to copy them to the host"};
      case Stage::host: return execution_->waits_for();
      default: return {{}, "the GPU to copy the results from the host"};
    }
  }

 private:
  using Block = BlockPool::Block;
  enum class Stage : std::uint8_t { leaving, host, returning, done };

  /// An element range that is copied through the host.
  struct StagedRange {
    const BatchTensor* tensor = nullptr;
    const void* source = nullptr;  // on the device
    std::int64_t bytes = 0;        // size of the source
    BatchTensor staged{};
    Block input{};
    Block output{};             // empty if the results replace the input
    void* target = nullptr;     // for the results, on the device
    std::int64_t arriving = 0;  // size of the results
  };

  /// False on the ranks of a broadcast other than its root: they only receive.
  bool reads_input() const { return !has_root_that_sends() || batch_.kind.root == rank_; }
  bool has_root_that_sends() const { return traits_of(batch_.kind.type).root_sends; }

  void stage(const ElementRange& range) {
    const BatchTensor& tensor = *range.tensor;
    const std::int64_t before = range.first * signed_size_of(tensor.dtype);
    StagedRange& item = staged_.emplace_back();
    item.tensor = &tensor;
    item.source = static_cast<const std::byte*>(tensor.input) + before;
    item.bytes = range.elements * signed_size_of(tensor.dtype);
    item.input = take(item.bytes);
    item.staged.input = item.input.data();
    item.staged.dtype = tensor.dtype;
    item.staged.rows = tensor.rows;
    item.staged.row_elements = tensor.row_elements;
    item.staged.counts = tensor.counts;
    switch (batch_.kind.type) {
      case OperationType::reducescatter: {
        const auto size = static_cast<int>(batch_.ranks.size());
        item.target = tensor.output;
        item.arriving =
            reducescatter_rows(tensor.rows, index_of(rank_, batch_), size) * tensor.row_bytes();
        item.output = take(item.arriving);
        item.staged.output = item.output.data();
        return;
      }
      case OperationType::allgather:
      case OperationType::alltoall:
        item.staged.allocate = [this, &item](std::span<const std::int64_t> rows) {
          return allocate(item, rows);
        };
        return;
      default:
        item.target = static_cast<std::byte*>(tensor.output) + before;
        item.arriving = item.bytes;
        item.staged.output = item.input.data();
        item.staged.rows = range.elements;
        item.staged.row_elements = 1;
    }
  }

  Block take(std::int64_t bytes) {
    return gpu_.pinned_blocks().take(static_cast<std::size_t>(bytes));
  }

  void* allocate(StagedRange& item, std::span<const std::int64_t> rows) {
    const std::int64_t all = std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
    const CudaStreamScope scope(gpu_.return_stream());
    item.target = item.tensor->allocate(rows);
    if (item.target == nullptr && all > 0 && item.tensor->row_elements > 0) return nullptr;
    item.arriving = all * item.tensor->row_bytes();
    item.output = take(item.arriving);
    return item.output.data();
  }

  void move(const void* from, void* to, std::int64_t bytes, CopyKind kind) {
    const bool leaves = kind == CopyKind::to_host;
    if (bytes >= min_bytes_copied) {
      gpu_.runtime()->copy(to, from, static_cast<std::size_t>(bytes), kind,
                           leaves ? gpu_.stream() : gpu_.return_stream());
      return;
    }
    (leaves ? outgoing_ : incoming_)
        .add({.from = static_cast<const std::byte*>(from),
              .to = static_cast<std::byte*>(to),
              .elements = bytes});
  }

  /// Copies results back. The root of a broadcast has its tensor already, unless the output
  /// differs.
  void bring_back() {
    for (const StagedRange& item : staged_) {
      if (has_root_that_sends() && item.source == item.target && batch_.kind.root == rank_)
        continue;
      const auto* const from =
          item.output.data() != nullptr ? item.output.data() : item.input.data();
      move(from, item.target, item.arriving, CopyKind::to_device);
    }
    incoming_.launch(gpu_, gpu_.return_stream());
    returned_ = make_event(gpu_.runtime());
    gpu_.runtime()->record(returned_.get(), gpu_.return_stream());
  }

  Gpu& gpu_;
  Backend& cpu_;
  const Batch& batch_;
  int rank_;
  std::uint32_t part_;
  Stage stage_ = Stage::leaving;
  std::deque<StagedRange> staged_{};  // a deque: the backend points to the tensors
  TransferLaunch outgoing_{};
  TransferLaunch incoming_{};
  Event arrived_{};
  Event returned_{};
  std::unique_ptr<Execution> execution_{};
};

/// All chunks launch their copies and start on the CPU's backend at once, so that the order of its
/// batches is the same on all ranks. That backend executes them one after another.
class Staged : public Execution {
 public:
  Staged(Gpu& gpu, Backend& cpu, Batch given, int rank, std::int64_t chunk_bytes)
      : batch_(std::move(given)) {
    gpu.await(batch_.tensors, gpu.stream());
    std::uint32_t part = 0;
    for (const std::vector<ElementRange>& ranges : cut_into_chunks(batch_, chunk_bytes))
      chunks_.emplace_back(gpu, cpu, batch_, rank, ++part).begin(ranges);
  }

  Progress step() override {
    Progress progress = Progress::waiting;
    for (StagedChunk& chunk : chunks_) {
      if (chunk.step() != Progress::waiting) progress = Progress::moved;
      // The CPU's backend executes chunks in order, so no later chunk can be reduced earlier.
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
  std::deque<StagedChunk> chunks_{};  // chunks that are not done
};

}  // namespace

std::vector<std::vector<ElementRange>> cut_into_chunks(const Batch& batch, std::int64_t min_bytes) {
  std::vector<std::vector<ElementRange>> chunks(1);
  std::int64_t bytes = 0;
  for (const BatchTensor* tensor : batch.tensors) bytes += tensor->bytes();
  const std::int64_t each = can_go_apart(batch.kind)
                                ? std::max(min_bytes, (bytes + max_chunks - 1) / max_chunks)
                                : std::numeric_limits<std::int64_t>::max();
  std::int64_t room = each;
  for (const BatchTensor* tensor : batch.tensors) {
    const std::int64_t size = signed_size_of(tensor->dtype);
    ElementRange next{tensor, 0, tensor->elements()};
    while (next.elements * size > room && std::ssize(chunks) < max_chunks) {
      const std::int64_t fits = room / size;
      if (fits > 0) chunks.back().push_back({tensor, next.first, fits});
      next.first += fits;
      next.elements -= fits;
      chunks.emplace_back();
      room = each;
    }
    chunks.back().push_back(next);
    room -= next.elements * size;
  }
  return chunks;
}

std::unique_ptr<Execution> make_staged(Gpu& gpu, Backend& cpu, Batch batch, int rank,
                                       std::int64_t chunk_bytes) {
  return std::make_unique<Staged>(gpu, cpu, std::move(batch), rank, chunk_bytes);
}

}  // namespace kolo::internal::backend::gpu
