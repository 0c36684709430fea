// SPDX-License-Identifier: Apache-2.0
#include "transport/mpi_transport.hpp"

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "kolo/error.hpp"
#include "node/error_codes.hpp"

namespace kolo::internal::transport {
namespace {

using node::check_mpi;

constexpr int tag = 1;
constexpr int messages_per_poll = 64;
constexpr std::size_t max_unconfirmed = std::size_t{1} << 20;

}  // namespace

MpiTransport::~MpiTransport() {
  if (!sent_.empty()) std::make_unique<std::vector<Sent>>(std::move(sent_)).release();
  if (!arriving_.empty()) std::make_unique<std::deque<Arriving>>(std::move(arriving_)).release();
}

void MpiTransport::send(int peer, Message message) {
  if (message.size() > static_cast<std::size_t>(std::numeric_limits<int>::max()))
    throw BackendError("a control message is larger than 2 GiB");
  Backlog& backlog = backlogs_[peer];
  const std::size_t bytes = message.size() + sizeof(Sent);
  backlog.bytes += bytes;
  backlog.later += bytes;
  const bool confirms =
      !backlog.awaited && backlog.later >= std::min(max_unconfirmed, max_unsent_ / 2);
  if (confirms) {
    backlog.awaited = true;
    backlog.later = 0;
  }
  // Moving a message, also within the vector later, leaves its bytes in place for MPI to read.
  MPI_Request& request = sends_.emplace_back(MPI_REQUEST_NULL);
  const Message& kept =
      sent_.emplace_back(Sent{std::move(message), confirms ? &backlog : nullptr}).message;
  const auto size = static_cast<int>(kept.size());
  if (confirms)
    check_mpi(MPI_Issend(kept.data(), size, MPI_BYTE, peer, tag, comm_, &request), "MPI_Issend");
  else
    check_mpi(MPI_Isend(kept.data(), size, MPI_BYTE, peer, tag, comm_, &request), "MPI_Isend");
  if (backlog.bytes > max_unsent_) refuse_unsent(peer, backlog.bytes);
}

/// Short messages that only await their confirmation count as flushed. They leave as soon as they
/// are sent, and a receiver that has left the session would never confirm them.
bool MpiTransport::flushed() const {
  return std::ranges::all_of(sent_, [](const Sent& sent) {
    return sent.confirms != nullptr && sent.message.size() <= small_bytes;
  });
}

bool MpiTransport::poll(const Receiver& receive) {
  bool moved = finish_sends();
  for (int i = 0; i < messages_per_poll && arriving_bytes_ <= max_unsent_ && match_one(receive);
       ++i)
    moved = true;
  moved |= hand_over_arrived(receive);
  return moved;
}

bool MpiTransport::finish_sends() {
  if (sends_.empty()) return false;
  finished_.resize(sends_.size());
  int count = 0;
  check_mpi(MPI_Testsome(static_cast<int>(sends_.size()), sends_.data(), &count, finished_.data(),
                         MPI_STATUSES_IGNORE),
            "MPI_Testsome");
  if (count == 0) return false;
  for (int i = 0; i < count; ++i)
    confirm(sent_[static_cast<std::size_t>(finished_[static_cast<std::size_t>(i)])].confirms);
  std::size_t kept = 0;
  for (std::size_t i = 0; i < sends_.size(); ++i) {
    if (sends_[i] == MPI_REQUEST_NULL) continue;
    sends_[kept] = sends_[i];
    if (kept != i) sent_[kept] = std::move(sent_[i]);
    ++kept;
  }
  sends_.resize(kept);
  sent_.resize(kept);
  return true;
}

/// Subtracts all bytes up to the confirming message: MPI matches the messages of a pair in order,
/// so the receiver has all of them.
void MpiTransport::confirm(Backlog* backlog) {
  if (backlog == nullptr) return;
  backlog->bytes = backlog->later;
  backlog->awaited = false;
}

bool MpiTransport::match_one(const Receiver& receive) {
  int found = 0;
  MPI_Message handle = MPI_MESSAGE_NULL;
  MPI_Status status;
  check_mpi(MPI_Improbe(MPI_ANY_SOURCE, tag, comm_, &found, &handle, &status), "MPI_Improbe");
  if (found == 0) return false;
  const int peer = status.MPI_SOURCE;
  int bytes = 0;
  check_mpi(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
  const auto size = static_cast<std::size_t>(bytes);
  // While an earlier message is arriving, a short one queues behind it to keep the order.
  if (size <= small_.size() && arriving_.empty()) {
    check_mpi(MPI_Mrecv(small_.data(), bytes, MPI_BYTE, &handle, &status), "MPI_Mrecv");
    receive(peer, std::span<const std::byte>(small_).first(size));
  } else {
    Arriving& next = arriving_.emplace_back(Arriving{peer, Message(size), MPI_REQUEST_NULL});
    arriving_bytes_ += size;
    check_mpi(MPI_Imrecv(next.message.data(), bytes, MPI_BYTE, &handle, &next.request),
              "MPI_Imrecv");
  }
  return true;
}

bool MpiTransport::hand_over_arrived(const Receiver& receive) {
  bool moved = false;
  while (!arriving_.empty()) {
    int done = 0;
    check_mpi(MPI_Test(&arriving_.front().request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done == 0) break;
    const Arriving arrived = std::move(arriving_.front());
    arriving_.pop_front();
    arriving_bytes_ -= arrived.message.size();
    receive(arrived.peer, arrived.message);
    moved = true;
  }
  return moved;
}

}  // namespace kolo::internal::transport
