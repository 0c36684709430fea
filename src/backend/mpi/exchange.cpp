// SPDX-License-Identifier: Apache-2.0
#include "backend/mpi/exchange.hpp"

#include <algorithm>
#include <functional>
#include <utility>

#include "node/error_codes.hpp"

namespace kolo::internal::backend::mpi {
namespace {

constexpr int max_under_way = 4;  // chunks of a flow

/// The sequences for which there are tags.
std::uint64_t count_sequences(int max_tag) {
  return (static_cast<std::uint64_t>(max_tag) + 1) / (Batch::parts * Exchange::lanes);
}

}  // namespace

int find_max_tag() {
  int* max_tag = nullptr;
  int found = 0;
  node::check_mpi(
      MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, static_cast<void*>(&max_tag), &found),
      "MPI_Comm_get_attr");
  return found != 0 ? std::max(*max_tag, guaranteed_max_tag) : guaranteed_max_tag;
}

Endpoint::Endpoint(MPI_Comm communicator, std::int64_t bytes, int max_tag)
    : comm(communicator), piece_bytes(bytes - bytes % 8), sequences(count_sequences(max_tag)) {
  node::check_mpi(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
  node::check_mpi(MPI_Comm_size(comm, &size), "MPI_Comm_size");
}

// A tag is the batch's sequence and part, and a lane. Sequences wrap around, and `sequence_span`
// keeps those apart that have the same tags. Within a tag MPI keeps the messages of two ranks in
// their order, so chunks need no numbers.
Exchange::Exchange(Endpoint& endpoint, std::uint64_t order)
    : endpoint_(endpoint),
      first_tag_(static_cast<int>(order % (endpoint.sequences * Batch::parts)) * lanes) {}

Exchange::~Exchange() {
  withdraw_receives();
  // Memory that MPI may still read or write must stay valid.
  for (Kept& kept : kept_) {
    if (requests_.empty()) {
      endpoint_.buffers.give_back(std::move(kept.buffer), kept.bytes);
    } else {
      static_cast<void>(kept.buffer.release());
    }
  }
}

// After a failure the tensors belong to the program again, which may free them. A receive that no
// message has reached yet is canceled, so that MPI does not write them when a later session calls
// it. Sends, and receives that have begun, cannot be taken back.
void Exchange::withdraw_receives() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized != 0) return;
  for (std::size_t at = requests_.size(); at-- > 0;) {
    if (std::get<Direction>(*chunks_[at].key) != Direction::receive) continue;
    int done = 0;
    if (MPI_Cancel(&requests_[at]) != MPI_SUCCESS ||
        MPI_Test(&requests_[at], &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || done == 0)
      continue;
    requests_[at] = requests_.back();
    chunks_[at] = chunks_.back();
    requests_.pop_back();
    chunks_.pop_back();
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
  const auto found = flows_.try_emplace(key).first;
  found->second.waiting.push_back(transfer);
  post(found->first, found->second);
}

void Exchange::post(const Key& key, Flow& flow) {
  while (flow.under_way < max_under_way && flow.first < flow.waiting.size()) {
    Transfer& transfer = flow.waiting[flow.first];
    post_chunk(key, flow, transfer);
    if (transfer.bytes == 0) ++flow.first;
  }
  if (flow.first == flow.waiting.size()) {
    flow.waiting.clear();
    flow.first = 0;
  }
}

void Exchange::post_chunk(const Key& key, Flow& flow, Transfer& transfer) {
  const auto& [peer, lane, direction] = key;
  const std::int64_t bytes = std::min(transfer.bytes, endpoint_.piece_bytes);
  const int count = static_cast<int>(bytes);
  const int tag = first_tag_ + lane;
  MPI_Request request = MPI_REQUEST_NULL;
  if (direction == Direction::send) {
    node::check_mpi(MPI_Isend(transfer.data, count, MPI_BYTE, peer, tag, endpoint_.comm, &request),
                    "MPI_Isend");
  } else {
    node::check_mpi(MPI_Irecv(transfer.data, count, MPI_BYTE, peer, tag, endpoint_.comm, &request),
                    "MPI_Irecv");
  }
  transfer.data += bytes;
  transfer.bytes -= bytes;
  requests_.push_back(request);
  chunks_.push_back({&key, &flow, transfer.pending});
  ++flow.under_way;
}

bool Exchange::step() {
  if (requests_.empty()) return false;
  finished_.resize(requests_.size());
  int count = 0;
  node::check_mpi(MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count,
                               finished_.data(), MPI_STATUSES_IGNORE),
                  "MPI_Testsome");
  if (count <= 0) return false;
  // From the last to the first, so that the request that takes the place of a finished one is not
  // finished itself.
  finished_.resize(static_cast<std::size_t>(count));
  std::ranges::sort(finished_, std::greater<>());
  for (const int index : finished_) {
    const auto at = static_cast<std::size_t>(index);
    const Chunk chunk = chunks_[at];
    requests_[at] = requests_.back();
    chunks_[at] = chunks_.back();
    requests_.pop_back();
    chunks_.pop_back();
    --chunk.flow->under_way;
    --*chunk.pending;
    post(*chunk.key, *chunk.flow);
  }
  return true;
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
  for (const Chunk& chunk : chunks_) peers.push_back(std::get<0>(*chunk.key));
  std::ranges::sort(peers);
  peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
  return peers;
}

}  // namespace kolo::internal::backend::mpi
