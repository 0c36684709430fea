// SPDX-License-Identifier: Apache-2.0
// The work of the NCCL double on the GPU: ranks move their data through shared memory, chunk by
// chunk, each at its own speed.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "base/dtype.hpp"
#include "fake_nccl_world.hpp"
#include "reduction/reduce.hpp"

namespace kolo::internal::backend {
namespace {

using Kind = NcclCollective::Kind;

reduction::Arithmetic arithmetic_of(const NcclCollective& collective) {
  reduction::Arithmetic arithmetic{.dtype = collective.dtype};
  switch (collective.op) {
    case nccl::RedOp::product: arithmetic.op = ReduceOp::product; break;
    case nccl::RedOp::max: arithmetic.op = ReduceOp::max; break;
    case nccl::RedOp::min: arithmetic.op = ReduceOp::min; break;
    case nccl::RedOp::sum: break;
  }
  // NCCL is given booleans as bytes.
  if (collective.dtype == DType::boolean) arithmetic.dtype = DType::u8;
  return arithmetic;
}

void copy_bytes(void* to, const void* from, std::int64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

void check_memory(const NcclPlace& place, const void* memory, std::int64_t bytes) {
  if (bytes > 0 && !place.cuda.is_memory(memory, static_cast<std::size_t>(bytes)))
    place.cuda.fault("NCCL's kernel touches memory that is none of the device's");
}

/// All ranks give their chunk of a round, then all use the chunks, then the next round begins.
class CollectiveKernel {
 public:
  CollectiveKernel(const NcclPlace& place, const NcclCollective& collective, const NcclCall& call,
                   std::uint64_t number)
      : place_(place), collective_(collective), call_(call), number_(number) {
    const std::int64_t parts = collective.kind == Kind::reduce_scatter ? place.clique.size : 1;
    rounds_ = parts * rounds_of_part();
  }

  bool operator()() {
    const std::lock_guard lock(place_.world.mutex());
    if (own().collectives != number_) return false;
    if (!std::exchange(begun_, true)) begin();
    while (round_ < rounds_) {
      if (!deposited_ && !deposit()) return false;
      if (!take()) return false;
    }
    ++own().collectives;
    return true;
  }

 private:
  [[nodiscard]] std::int64_t element_bytes() const { return signed_size_of(collective_.dtype); }
  [[nodiscard]] std::int64_t each() const { return NcclSlot::chunk_bytes / element_bytes(); }
  [[nodiscard]] std::int64_t rounds_of_part() const {
    return (collective_.count + each() - 1) / each();
  }
  [[nodiscard]] std::int64_t part() const { return round_ / rounds_of_part(); }
  [[nodiscard]] std::int64_t first() const { return round_ % rounds_of_part() * each(); }
  [[nodiscard]] std::int64_t elements() const {
    return std::min(each(), collective_.count - first());
  }
  [[nodiscard]] std::int64_t bytes() const { return elements() * element_bytes(); }
  [[nodiscard]] NcclSlot& slot(int rank) const {
    return place_.clique.slots[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] NcclSlot& own() const { return slot(place_.rank); }
  [[nodiscard]] std::byte* to(std::int64_t element) const {
    return static_cast<std::byte*>(collective_.to) + element * element_bytes();
  }

  void begin() {
    const std::int64_t all = collective_.count * element_bytes();
    const std::int64_t ranks = place_.clique.size;
    const bool gives = collective_.kind != Kind::broadcast || place_.rank == collective_.root;
    if (gives)
      check_memory(place_, collective_.from,
                   collective_.kind == Kind::reduce_scatter ? ranks * all : all);
    check_memory(place_, collective_.to, collective_.kind == Kind::all_gather ? ranks * all : all);
  }

  bool deposit() {
    for (int rank = 0; rank < place_.clique.size; ++rank)
      if (slot(rank).taken < own().deposited) return false;
    own().call = call_;  // the others have compared that before
    const std::int64_t element =
        first() + (collective_.kind == Kind::reduce_scatter ? part() * collective_.count : 0);
    if (collective_.kind != Kind::broadcast || place_.rank == collective_.root)
      copy_bytes(own().chunk.data(),
                 static_cast<const std::byte*>(collective_.from) + element * element_bytes(),
                 bytes());
    ++own().deposited;
    return deposited_ = true;
  }

  bool take() {
    for (int rank = 0; rank < place_.clique.size; ++rank)
      if (slot(rank).deposited < own().deposited) return false;
    if (round_ == 0) compare_calls();
    use();
    ++own().taken;
    ++round_;
    deposited_ = false;
    return true;
  }

  void compare_calls() const {
    for (int rank = 0; rank < place_.clique.size; ++rank) {
      const NcclCall& other = slot(rank).call;
      const std::string_view name = other.name.data();
      const std::string_view places = other.places.data();
      if (name != call_.name.data())
        place_.world.complain(fmt::format("\"{}\" meets \"{}\"", call_.name.data(), name));
      else if (places != call_.places.data())
        place_.world.complain(fmt::format("ranks use other registered memory: {} and {}",
                                          call_.places.data(), places));
    }
  }

  void use() const {
    switch (collective_.kind) {
      case Kind::all_reduce: return reduce_chunks();
      case Kind::reduce_scatter:
        if (part() == place_.rank) reduce_chunks();
        return;
      case Kind::all_gather:
        for (int rank = 0; rank < place_.clique.size; ++rank)
          copy_bytes(to(rank * collective_.count + first()), slot(rank).chunk.data(), bytes());
        return;
      case Kind::broadcast:
        return copy_bytes(to(first()), slot(collective_.root).chunk.data(), bytes());
    }
  }

  /// In the order of the ranks.
  void reduce_chunks() const {
    std::vector<const std::byte*> inputs;
    for (int rank = 0; rank < place_.clique.size; ++rank) inputs.push_back(slot(rank).chunk.data());
    reduction::reduce(arithmetic_of(collective_), inputs, elements(), to(first()));
  }

  NcclPlace place_;
  NcclCollective collective_;
  NcclCall call_;
  std::uint64_t number_;
  std::int64_t rounds_ = 0;
  std::int64_t round_ = 0;
  bool begun_ = false;
  bool deposited_ = false;  // this round
};

NcclChannel& channel_of(const NcclPlace& place, int from, int to) {
  return place.clique.channels[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)];
}

}  // namespace

FakeCuda::Work collective_kernel(const NcclPlace& place, const NcclCollective& collective,
                                 const NcclCall& call, std::uint64_t number) {
  return CollectiveKernel(place, collective, call, number);
}

FakeCuda::Work send_kernel(const NcclPlace& place, const void* from, std::int64_t bytes, int peer,
                           std::uint64_t number) {
  return [=, begin = static_cast<const std::byte*>(from), sent = std::int64_t{0}]() mutable {
    const std::lock_guard lock(place.world.mutex());
    NcclChannel& channel = channel_of(place, place.rank, peer);
    if (channel.sends != number) return false;
    if (sent == 0) check_memory(place, begin, bytes);
    while (sent < bytes) {
      if (channel.deposited != channel.taken) return false;
      const std::int64_t now = std::min(NcclChannel::chunk_bytes, bytes - sent);
      copy_bytes(channel.chunk.data(), begin + sent, now);
      channel.message_bytes = bytes;
      ++channel.deposited;
      sent += now;
    }
    ++channel.sends;
    return true;
  };
}

FakeCuda::Work receive_kernel(const NcclPlace& place, void* to, std::int64_t bytes, int peer,
                              std::uint64_t number) {
  return [=, begin = static_cast<std::byte*>(to), received = std::int64_t{0}]() mutable {
    const std::lock_guard lock(place.world.mutex());
    NcclChannel& channel = channel_of(place, peer, place.rank);
    if (channel.receives != number) return false;
    if (received == 0) check_memory(place, begin, bytes);
    while (received < bytes) {
      if (channel.deposited == channel.taken) return false;
      if (received == 0 && channel.message_bytes != bytes)
        place.world.complain(
            fmt::format("{} bytes are sent, {} received", channel.message_bytes, bytes));
      const std::int64_t now = std::min(NcclChannel::chunk_bytes, bytes - received);
      copy_bytes(begin + received, channel.chunk.data(), now);
      ++channel.taken;
      received += now;
    }
    ++channel.receives;
    return true;
  };
}

}  // namespace kolo::internal::backend
