// SPDX-License-Identifier: Apache-2.0
#include "backend/mpi/exchange.hpp"

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

namespace kolo::internal::backend::mpi {
namespace {

constexpr std::align_val_t alignment{64};
constexpr std::size_t max_kept = 16;      // buffers of each size
constexpr std::size_t max_kept_log = 26;  // 64 MiB
constexpr std::int64_t max_kept_bytes = std::int64_t{1} << max_kept_log;

/// The base-2 logarithm of the smallest power of two that holds `bytes`, and at least 64 bytes.
std::size_t size_log(std::int64_t bytes) {
  return static_cast<std::size_t>(
      std::bit_width(static_cast<std::uint64_t>(std::max<std::int64_t>(bytes, 64) - 1)));
}

// Kept buffers are powers of two, so that a buffer fits later transfers of similar sizes. The
// system provides only the pages that are written.
std::int64_t size_of(std::int64_t bytes) {
  const std::size_t log = size_log(bytes);
  return log <= max_kept_log ? std::int64_t{1} << log : bytes;
}

/// The maximum number of chunks of a flow in flight.
int max_under_way(int ranks) { return std::clamp(64 / ranks, 4, 16); }

}  // namespace

void FreeBuffer::operator()(std::byte* buffer) const { ::operator delete[](buffer, alignment); }

Buffer BufferPool::take(std::int64_t bytes) {
  const std::size_t log = size_log(bytes);
  if (std::vector<Buffer>& kept = free_[log]; !kept.empty()) {
    Buffer buffer = std::move(kept.back());
    kept.pop_back();
    kept_bytes_ -= size_of(bytes);
    return buffer;
  }
  const auto size = static_cast<std::size_t>(size_of(bytes));
  return Buffer(static_cast<std::byte*>(::operator new[](size, alignment)));
}

void BufferPool::give_back(Buffer buffer, std::int64_t bytes) {
  const std::size_t log = size_log(bytes);
  if (log > max_kept_log || free_[log].size() == max_kept) return;
  if (kept_bytes_ + size_of(bytes) > max_kept_bytes) return;
  free_[log].push_back(std::move(buffer));
  kept_bytes_ += size_of(bytes);
}

Endpoint::Endpoint(messenger::Messenger& network, std::int64_t bytes)
    : messenger(network),
      rank(network.rank()),
      size(network.size()),
      piece_bytes(bytes - bytes % 8),
      sequences(network.tag_count() / Exchange::min_tags) {}

// A tag consists of the batch's sequence and part, and of a lane. Sequences wrap around;
// `sequence_span` keeps batches with equal tags apart. Messages with the same tag keep their order,
// so chunks need no numbers.
Exchange::Exchange(Endpoint& endpoint, std::uint64_t order)
    : endpoint_(endpoint),
      channel_(endpoint.messenger.open()),
      first_tag_(order % (endpoint.sequences * Batch::parts) * lanes) {}

Exchange::~Exchange() {
  // If the network may still access memory, it must stay valid: those buffers leak.
  const bool is_free = endpoint_.messenger.release(channel_);
  for (Kept& kept : kept_) {
    if (is_free) {
      endpoint_.buffers.give_back(std::move(kept.buffer), kept.bytes);
    } else {
      static_cast<void>(kept.buffer.release());
    }
  }
}

void Exchange::send(int peer, int lane, const std::byte* data, std::int64_t bytes, int& pending) {
  add({peer, lane, Direction::send}, {const_cast<std::byte*>(data), bytes, &pending});
}

void Exchange::receive(int peer, int lane, std::byte* data, std::int64_t bytes, int& pending) {
  add({peer, lane, Direction::receive}, {data, bytes, &pending});
}

void Exchange::add(const Key& key, const Transfer& transfer) {
  if (transfer.bytes == 0) return;
  const std::int64_t chunks = (transfer.bytes + endpoint_.piece_bytes - 1) / endpoint_.piece_bytes;
  *transfer.pending += static_cast<int>(chunks);
  // Nodes of a map do not move, so tokens may point to their flow.
  const auto found = flows_.try_emplace(key).first;
  found->second.key = &found->first;
  found->second.waiting.push_back(transfer);
  post(found->second);
}

/// Posts chunks of the flow in order, up to the limit of chunks in flight.
void Exchange::post(Flow& flow) {
  while (flow.under_way < max_under_way(endpoint_.size) && flow.first < flow.waiting.size()) {
    Transfer& transfer = flow.waiting[flow.first];
    post_chunk(flow, transfer);
    if (transfer.bytes == 0) ++flow.first;
  }
  if (flow.first == flow.waiting.size()) {
    flow.waiting.clear();
    flow.first = 0;
  }
}

void Exchange::post_chunk(Flow& flow, Transfer& transfer) {
  const auto& [peer, lane, direction] = *flow.key;
  const std::int64_t bytes = std::min(transfer.bytes, endpoint_.piece_bytes);
  const messenger::Tag tag = first_tag_ + static_cast<messenger::Tag>(lane);
  const messenger::Token token{&flow, transfer.pending};
  if (direction == Direction::send)
    channel_.send(peer, tag, transfer.data, bytes, token);
  else
    channel_.receive(peer, tag, transfer.data, bytes, token);
  transfer.data += bytes;
  transfer.bytes -= bytes;
  ++flow.under_way;
  ++under_way_;
}

bool Exchange::step() {
  if (under_way_ == 0) return false;
  done_.clear();
  channel_.progress(done_);
  for (const messenger::Token& token : done_) {
    auto& flow = *static_cast<Flow*>(token.owner);
    --flow.under_way;
    --under_way_;
    --*token.counter;
    post(flow);
  }
  return !done_.empty();
}

std::byte* Exchange::take(std::int64_t bytes) {
  kept_.push_back({endpoint_.buffers.take(bytes), bytes});
  return kept_.back().buffer.get();
}

void Exchange::give_back(const std::byte* buffer) {
  const auto found =
      std::ranges::find_if(kept_, [=](const Kept& kept) { return kept.buffer.get() == buffer; });
  if (found == kept_.end()) return;
  endpoint_.buffers.give_back(std::move(found->buffer), found->bytes);
  kept_.erase(found);
}

std::vector<int> Exchange::peers() const {
  std::vector<int> peers;
  for (const auto& [key, flow] : flows_)
    if (flow.under_way > 0 && (peers.empty() || peers.back() != std::get<0>(key)))
      peers.push_back(std::get<0>(key));
  return peers;
}

}  // namespace kolo::internal::backend::mpi
