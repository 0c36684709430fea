// SPDX-License-Identifier: Apache-2.0
// Counters behind `Statistics`.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/descriptor.hpp"
#include "base/enumerators.hpp"
#include "kolo/diagnostics.hpp"

namespace kolo::internal::diagnostics {

/// A number that one thread at a time adds to and any thread may read. Relaxed: readers want each
/// number by itself, and no other memory depends on it.
class Counter {
 public:
  void add(std::uint64_t value = 1) { set(get() + value); }
  void set(std::uint64_t value) { value_.store(value, std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t get() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_{0};
};

/// A histogram of values, with the thread-safety of Counter.
class Distribution {
 public:
  void add(std::uint64_t value) {
    const auto digits = static_cast<std::size_t>(std::bit_width(value));
    buckets_[std::min(digits, buckets_.size() - 1)].add();
    count_.add();
    sum_.add(value);
    if (value > max_.get()) max_.set(value);
  }

  [[nodiscard]] Histogram read() const {
    Histogram histogram{.count = count_.get(), .sum = sum_.get(), .max = max_.get()};
    for (std::size_t i = 0; i < buckets_.size(); ++i) histogram.buckets[i] = buckets_[i].get();
    return histogram;
  }

 private:
  Counter count_{};
  Counter sum_{};
  Counter max_{};
  std::array<Counter, std::tuple_size_v<decltype(Histogram::buckets)>> buckets_{};
};

struct Counters {
  struct OfType {
    Counter operations{};
    Counter bytes{};
  };
  Counter submitted{};
  Counter failed{};
  std::array<OfType, enumerator_count<OperationType>> by_type{};  // operations that succeeded
  Counter batches{};
  Counter plans{};
  Counter plan_batches{};
  Counter messages_sent{};
  Counter message_bytes_sent{};
  Counter messages_received{};
  Counter message_bytes_received{};
  Counter wakes{};
  Distribution batch_operations{};
  Distribution batch_bytes{};
  Distribution negotiation{};
  Distribution execution{};
  Distribution packing{};
  Distribution reducing{};
  Distribution unpacking{};
  Distribution waiting{};

  [[nodiscard]] Statistics read() const;
};

[[nodiscard]] std::string in_bytes(double bytes);  // "1.5 KiB"

}  // namespace kolo::internal::diagnostics
