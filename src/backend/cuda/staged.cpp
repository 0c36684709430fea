#include "backend/cuda/staged.hpp"

#include <fmt/format.h>

#include <deque>
#include <numeric>
#include <utility>
#include <vector>

#include "backend/batch.hpp"
#include "backend/cuda/transfers.hpp"

namespace kolo::backend::cuda {
namespace {

/// Shorter tensors are moved by the kernel, all in one launch; longer ones by the copy engine.
constexpr std::int64_t least_bytes_copied = 256 << 10;

class Staged : public Execution {
 public:
  Staged(Gpu& gpu, Backend& cpu, Batch given, int rank)
      : gpu_(gpu), batch_(std::move(given)), rank_(rank), outgoing_(gpu), incoming_(gpu) {
    for (const Member* member : batch_.members) stage(*member);
    gpu_.await(batch_.members, gpu_.stream());
    if (reads_input())
      for (const Place& place : places_)
        move(place.member->input, place.input.data(), bytes_of_input(*place.member),
             CopyKind::to_host);
    outgoing_.launch(gpu_.stream());
    arrived_ = make_event(gpu_.runtime());
    gpu_.runtime()->record(arrived_.get(), gpu_.stream());
    Batch host = batch_;
    host.kind.device = {};
    host.part = 1;
    host.members.clear();
    for (const Place& place : places_) host.members.push_back(&place.staged);
    execution_ = cpu.start(std::move(host));
  }
  ~Staged() override {
    if (stage_ == Stage::done) return;
    for (Place& place : places_) {
      place.input.abandon();
      place.output.abandon();
    }
    outgoing_.abandon();
    incoming_.abandon();
  }
  Staged(const Staged&) = delete;
  Staged& operator=(const Staged&) = delete;

  Progress step() override {
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
        return Progress::done;
      case Stage::done: break;
    }
    return Progress::done;
  }

  [[nodiscard]] Awaited waits_for() const override {
    switch (stage_) {
      case Stage::leaving: return {{}, "the GPU to make the tensors and to copy them to the host"};
      case Stage::host: return execution_->waits_for();
      default: return {{}, "the GPU to copy the results from the host"};
    }
  }

 private:
  enum class Stage : std::uint8_t { leaving, host, returning, done };

  /// Of one member, on the host.
  struct Place {
    const Member* member = nullptr;
    Member staged{};
    BlockPool<PinnedMemory>::Block input{};
    BlockPool<PinnedMemory>::Block output{};  // if it is another
    void* target = nullptr;                   // of the results, on the device
    std::int64_t arriving = 0;                // bytes of them
  };

  [[nodiscard]] static std::int64_t bytes_of_row(const Member& member) {
    return member.row_elements * cuda::bytes_of(member.dtype);
  }
  [[nodiscard]] static std::int64_t bytes_of_input(const Member& member) {
    return member.rows * bytes_of_row(member);
  }

  /// All but a broadcast's root only write.
  [[nodiscard]] bool reads_input() const {
    return batch_.kind.type != OperationType::broadcast || batch_.kind.root == rank_;
  }

  void stage(const Member& member) {
    Place& place = places_.emplace_back();
    place.member = &member;
    place.input = take(bytes_of_input(member));
    place.staged.input = place.input.data();
    place.staged.dtype = member.dtype;
    place.staged.rows = member.rows;
    place.staged.row_elements = member.row_elements;
    place.staged.counts = member.counts;
    place.target = member.output;
    switch (batch_.kind.type) {
      case OperationType::reducescatter: {
        const auto size = static_cast<int>(batch_.ranks.size());
        place.arriving =
            reducescatter_rows(member.rows, index_of(rank_, batch_), size) * bytes_of_row(member);
        place.output = take(place.arriving);
        place.staged.output = place.output.data();
        return;
      }
      case OperationType::allgather:
      case OperationType::alltoall:
        place.staged.allocate = [this, &place](std::span<const std::int64_t> rows) {
          return allocate(place, rows);
        };
        return;
      default: place.arriving = bytes_of_input(member); place.staged.output = place.input.data();
    }
  }

  [[nodiscard]] BlockPool<PinnedMemory>::Block take(std::int64_t bytes) {
    return gpu_.pinned_blocks().take(static_cast<std::size_t>(bytes));
  }

  void* allocate(Place& place, std::span<const std::int64_t> rows) {
    const std::int64_t all = std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
    place.target = place.member->allocate(rows);
    if (place.target == nullptr && all > 0 && place.member->row_elements > 0) return nullptr;
    place.arriving = all * bytes_of_row(*place.member);
    place.output = take(place.arriving);
    return place.output.data();
  }

  void move(const void* from, void* to, std::int64_t bytes, CopyKind kind) {
    const bool leaves = kind == CopyKind::to_host;
    if (bytes >= least_bytes_copied) {
      gpu_.runtime()->copy(to, from, static_cast<std::size_t>(bytes), kind,
                           leaves ? gpu_.stream() : gpu_.return_stream());
      return;
    }
    (leaves ? outgoing_ : incoming_)
        .add({.from = static_cast<const std::byte*>(from),
              .to = static_cast<std::byte*>(to),
              .elements = bytes});
  }

  /// The root's tensor is where it belongs, unless it goes to another place.
  void bring_back() {
    for (const Place& place : places_) {
      if (batch_.kind.type == OperationType::broadcast && place.member->input == place.target &&
          batch_.kind.root == rank_)
        continue;
      const auto* const from =
          place.output.data() != nullptr ? place.output.data() : place.input.data();
      move(from, place.target, place.arriving, CopyKind::to_device);
    }
    incoming_.launch(gpu_.return_stream());
    returned_ = make_event(gpu_.runtime());
    gpu_.runtime()->record(returned_.get(), gpu_.return_stream());
  }

  Gpu& gpu_;
  Batch batch_;
  int rank_;
  Stage stage_ = Stage::leaving;
  std::deque<Place> places_{};  // whose members are pointed to
  Transfers outgoing_;
  Transfers incoming_;
  Event arrived_{};
  Event returned_{};
  std::unique_ptr<Execution> execution_{};
};

}  // namespace

std::unique_ptr<Execution> make_staged(Gpu& gpu, Backend& cpu, Batch batch, int rank) {
  return std::make_unique<Staged>(gpu, cpu, std::move(batch), rank);
}

}  // namespace kolo::backend::cuda
