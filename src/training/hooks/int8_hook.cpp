// SPDX-License-Identifier: Apache-2.0
// The communication hook that sends 8-bit integers.
#include <fmt/format.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kolo/collectives.hpp"
#include "kolo/communication_hook.hpp"
#include "kolo/error.hpp"
#include "training/hooks/block_quantizer.hpp"
#include "training/hooks/bucket_memory.hpp"
#include "training/hooks/hook_chain.hpp"

namespace kolo {

using namespace internal;
namespace {

constexpr const char* int8_kind = "kolo.int8.1";

/// The memory of a bucket between its reductions. The buffers are reused.
struct Int8Memory {
  std::vector<std::size_t> places;  // the tensors' places; empty after loading a checkpoint
  std::vector<float> error;         // the error of this rank's roundings; may be empty
  std::vector<float> values;        // the gradient plus the error
  std::vector<float> sum;           // this rank's slice, summed over the ranks
  std::vector<std::byte> sent;      // records of the other ranks' slices
  std::vector<std::byte> received;  // records of this rank's slice, from the other ranks
  std::vector<std::byte> own;       // records of `sum`
  std::vector<std::byte> results;   // records of all slices
};

/// The blocks of a bucket, dealt out to the ranks.
struct Slices {
  std::int64_t elements;
  std::int64_t block;
  int ranks;
  int self;

  [[nodiscard]] std::int64_t blocks() const { return (elements + block - 1) / block; }
  [[nodiscard]] std::int64_t blocks_of(int rank) const {
    return reducescatter_rows(blocks(), rank, ranks);
  }
  [[nodiscard]] std::int64_t first_block(int rank) const {
    std::int64_t first = 0;
    for (int i = 0; i < rank; ++i) first += blocks_of(i);
    return first;
  }
  [[nodiscard]] std::int64_t begin(int rank) const {
    return std::min(first_block(rank) * block, elements);
  }
  [[nodiscard]] std::int64_t elements_in(int rank) const { return begin(rank + 1) - begin(rank); }
};

/// One reduction of a bucket. Each rank owns a slice of the bucket. It receives the slice from the
/// other ranks as rounded records, adds its own values, which it does not round, and sends the
/// rounded sum to all ranks. So one vector of the bucket's size holds all errors of a rank: the
/// error of the sum in its own slice, and the errors of the records that it sent elsewhere.
class Int8Reduction {
 public:
  Int8Reduction(GradientBucket bucket, std::shared_ptr<Int8Memory> memory,
                const Int8Options& options)
      : bucket_(std::move(bucket)),
        memory_(std::move(memory)),
        feedback_(options.error_feedback),
        quantizer_(options.block),
        slices_{elements_of(bucket_.tensors), options.block, bucket_.process_set.size(),
                bucket_.process_set.rank()} {}

  Future<std::vector<std::int64_t>> exchange(const std::string& name) {
    Int8Memory& m = *memory_;
    const auto elements = static_cast<std::size_t>(slices_.elements);
    // Freezing or unfreezing parameters changes which elements a bucket has. The kept error then
    // belongs to other elements, so it is reset to zero.
    const bool are_others = !m.places.empty() && m.places != bucket_.places;
    if (are_others || m.error.size() != elements) m.error.assign(feedback_ ? elements : 0, 0.0F);
    m.places = bucket_.places;
    m.values.resize(elements);
    gather(bucket_.tensors, bucket_.prescale, feedback_ ? m.error.data() : nullptr,
           m.values.data());
    const std::int64_t others = slices_.blocks() - slices_.blocks_of(slices_.self);
    m.sent.resize(bytes_of(others));
    std::vector<std::int64_t> counts;
    std::byte* to = m.sent.data();
    for (int rank = 0; rank < slices_.ranks; ++rank) {
      counts.push_back(rank == slices_.self ? 0 : slices_.blocks_of(rank));
      if (rank == slices_.self) continue;
      quantizer_.quantize(m.values.data() + slices_.begin(rank), slices_.elements_in(rank), to);
      to += bytes_of(slices_.blocks_of(rank));
    }
    return alltoall_async(records(m.sent, others), counts, into(m.received),
                          {.name = name, .process_set = bucket_.process_set});
  }

  Future<std::vector<std::int64_t>> share(const std::string& name) {
    Int8Memory& m = *memory_;
    const int self = slices_.self;
    const std::int64_t blocks = slices_.blocks_of(self);
    for (int rank = 0; rank < slices_.ranks; ++rank)
      require(rows_[static_cast<std::size_t>(rank)] == (rank == self ? 0 : blocks), rank);
    const float* const values = m.values.data() + slices_.begin(self);
    const std::int64_t elements = slices_.elements_in(self);
    m.sum.assign(values, values + elements);
    for (int i = 0; i < slices_.ranks - 1; ++i)
      quantizer_.add(m.received.data() + bytes_of(i * blocks), elements, m.sum.data());
    m.own.resize(bytes_of(blocks));
    quantizer_.quantize(m.sum.data(), elements, m.own.data());
    return allgather_async(records(m.own, blocks), into(m.results),
                           {.name = name, .process_set = bucket_.process_set});
  }

  void finish() {
    Int8Memory& m = *memory_;
    for (int rank = 0; rank < slices_.ranks; ++rank) {
      const std::int64_t rows = rows_[static_cast<std::size_t>(rank)];
      // A rank that joined after the first operation does not send the sum of its slice.
      if (rows == 0 && slices_.blocks_of(rank) > 0) throw NeedsAllreduce();
      require(rows == slices_.blocks_of(rank), rank);
    }
    if (feedback_) keep_errors();
    quantizer_.dequantize(m.results.data(), slices_.elements, static_cast<float>(bucket_.postscale),
                          m.values.data());
    scatter(m.values.data(), bucket_.tensors);
  }

 private:
  [[nodiscard]] std::size_t bytes_of(std::int64_t blocks) const {
    return static_cast<std::size_t>(blocks * quantizer_.record_bytes());
  }

  [[nodiscard]] ConstTensorView records(const std::vector<std::byte>& memory,
                                        std::int64_t blocks) const {
    return {memory.data(), Shape(blocks, quantizer_.record_bytes())};
  }

  // An allocator that resizes `memory`, and notes the numbers of rows for `require`. It accepts any
  // numbers, because an allocator must not throw.
  [[nodiscard]] Allocator into(std::vector<std::byte>& memory) {
    return [this, &memory](std::span<const std::int64_t> rows) -> void* {
      std::int64_t blocks = 0;
      rows_.assign(rows.begin(), rows.end());
      for (const std::int64_t of_rank : rows) blocks += of_rank;
      memory.resize(bytes_of(blocks));
      return memory.data();
    };
  }

  // Keeps the errors of the records that this rank sent. In its own slice, it has rounded the sum
  // and not its values, so the error there is that of the sum.
  void keep_errors() {
    Int8Memory& m = *memory_;
    const std::byte* sent = m.sent.data();
    for (int rank = 0; rank < slices_.ranks; ++rank) {
      const std::int64_t begin = slices_.begin(rank);
      const bool is_own = rank == slices_.self;
      const std::byte* const results = m.results.data() + bytes_of(slices_.first_block(rank));
      quantizer_.keep_error(is_own ? m.sum.data() : m.values.data() + begin,
                            is_own ? results : sent, results, slices_.elements_in(rank),
                            m.error.data() + begin);
      if (!is_own) sent += bytes_of(slices_.blocks_of(rank));
    }
  }

  void require(bool is_complete, int rank) const {
    if (is_complete) return;
    throw Error(
        fmt::format("int8: member {} of the set has other gradients in this bucket than this "
                    "rank: freeze and unfreeze parameters on all ranks alike",
                    rank),
        bucket_.name);
  }

  GradientBucket bucket_;
  std::shared_ptr<Int8Memory> memory_;
  bool feedback_;
  BlockQuantizer quantizer_;
  Slices slices_;
  std::vector<std::int64_t> rows_;  // numbers of records from each rank in the last operation
};

class Int8Hook : public CommunicationHook {
 public:
  explicit Int8Hook(const Int8Options& options) : options_(options) {}

  [[nodiscard]] std::string description() const override {
    return fmt::format("int8, block {}, min_elements {}, error_feedback {}", options_.block,
                       options_.min_elements, options_.error_feedback);
  }

  [[nodiscard]] bool handles(std::span<const TensorView> bucket) const noexcept override {
    return are_real(bucket) &&
           elements_of(bucket) >= std::max<std::int64_t>(options_.min_elements, 1);
  }

  HookStages reduce(GradientBucket bucket) override {
    auto& memory = memories_[bucket.name];
    if (!memory) memory = std::make_shared<Int8Memory>();
    const auto reduction = std::make_shared<Int8Reduction>(std::move(bucket), memory, options_);
    return HookStages()
        .then([=](const std::string& name) { return reduction->exchange(name); })
        .then([=](const std::string& name) { return reduction->share(name); })
        .then([=] { reduction->finish(); });
  }

  [[nodiscard]] StateDict per_rank_state() const override {
    BucketVectors errors;
    for (const auto& [name, memory] : memories_)
      if (!memory->error.empty()) errors.emplace(name, memory->error);
    return state_of(int8_kind, errors);
  }
  void load_state(const StateDict& state) override {
    if (!state.empty())
      throw InvalidArgument("this is not the state of int8, whose state is all per rank");
    memories_.clear();
  }
  void load_per_rank_state(const StateDict& state) override {
    for (auto& [name, error] : vectors_of(int8_kind, state)) {
      auto& memory = memories_[name];
      memory = std::make_shared<Int8Memory>();
      memory->error = std::move(error);
    }
  }

 private:
  Int8Options options_;
  std::map<std::string, std::shared_ptr<Int8Memory>> memories_;
};

}  // namespace

std::shared_ptr<CommunicationHook> int8(const Int8Options& options) {
  if (options.block < 16 || options.block > 65536 || options.block % 16 != 0)
    throw InvalidArgument(fmt::format(
        "int8: block is {}, but must be a multiple of 16 of at most 65536", options.block));
  return std::make_shared<Int8Hook>(options);
}

}  // namespace kolo
