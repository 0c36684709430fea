// From the driver to the thread that writes a timeline.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "diagnostics/event.hpp"

namespace kolo::diagnostics {

/// A piece of a timeline. What the members mean depends on the kind.
struct Span {
  enum class Kind : std::uint8_t {
    operation,    // from `begin` to `agreed` negotiated, then executed until `end`
    batch_begin,  // at `begin`
    phase,        // of a batch, `what`, from `begin` to `end`
    batch_end,    // at `end`
    instant,      // at `begin`, `text`
  };

  TimePoint begin{};
  TimePoint agreed{};
  TimePoint end{};
  std::uint64_t batch = no_batch;
  std::uint64_t count = 0;  // operations of a batch
  std::int64_t bytes = 0;
  std::shared_ptr<const std::string> text{};  // the operation's name; null: none
  const char* what = nullptr;                 // lives for ever
  std::uint32_t track = 0;
  std::uint32_t set = 0;
  Kind kind = Kind::instant;
  OperationType type = OperationType::barrier;
  DType dtype = DType::u8;
  bool failed = false;
};

/// One thread pushes and one takes. When it is full, spans are dropped and counted.
class SpanQueue {
 public:
  /// `capacity` is a power of two.
  explicit SpanQueue(std::size_t capacity) : spans_(capacity), mask_(capacity - 1) {}

  /// False if it was dropped. `reserve`: room for so many more that are sure to come.
  bool push(Span span, std::size_t reserve) {
    const std::size_t tail = tail_.load(std::memory_order_relaxed);
    const std::size_t used = tail - head_.load(std::memory_order_acquire);
    if (used + reserve >= spans_.size()) {
      dropped_.store(dropped_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
      return false;
    }
    spans_[tail & mask_] = std::move(span);
    tail_.store(tail + 1, std::memory_order_release);
    return true;
  }

  /// Calls `use(span)` for all that are there. How many there were.
  template <typename Use>
  std::size_t take(Use use) {
    const std::size_t tail = tail_.load(std::memory_order_acquire);
    std::size_t head = head_.load(std::memory_order_relaxed);
    const std::size_t count = tail - head;
    for (; head != tail; ++head) {
      use(std::as_const(spans_[head & mask_]));
      spans_[head & mask_].text.reset();
      head_.store(head + 1, std::memory_order_release);
    }
    return count;
  }

  [[nodiscard]] std::uint64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }

 private:
  std::vector<Span> spans_;
  std::size_t mask_;
  alignas(64) std::atomic<std::size_t> head_{0};
  alignas(64) std::atomic<std::size_t> tail_{0};
  std::atomic<std::uint64_t> dropped_{0};
};

}  // namespace kolo::diagnostics
