// SPDX-License-Identifier: Apache-2.0
// A process whose server is lost, and whose standby takes over.
#include <chrono>
#include <utility>
#include <variant>

#include "rendezvous/tcp_rendezvous.hpp"

namespace kolo::internal::rendezvous {
namespace {

constexpr std::chrono::seconds between_standby_calls{2};

}  // namespace

void TcpRendezvous::open_standby() {
  if (!options_.standby) return;
  standby_ = StandbyLink::try_to_open(*options_.standby, options_.secret, make_hello());
  if (standby_) standby_address_ = standby_->address();
}

/// Connects again to a standby whose connection has ended: a network may have reset it.
void TcpRendezvous::reopen_standby() {
  if (standby_address_.length == 0 || (standby_ && standby_->is_open())) return;
  const auto now = std::chrono::steady_clock::now();
  if (now - standby_tried_ < between_standby_calls) return;
  standby_tried_ = now;
  standby_ =
      StandbyLink::reopen(*options_.standby, standby_address_, options_.secret, make_hello());
}

/// True while the server is lost and the standby may still take over.
bool TcpRendezvous::awaits_standby() {
  if (standby_address_.length == 0) return false;
  const auto now = std::chrono::steady_clock::now();
  if (!alone_since_) alone_since_ = now;
  return now - *alone_since_ < patience_with_standby(lease_);
}

/// Tells the standby, which has taken over, where this process stands. A start of a session in
/// progress fails, since its calls are lost: so its further ones are not sent.
void TcpRendezvous::change_server() {
  options_.server = standby_->at();
  connection_.send(Succession{standby_->reason()});  // if it is only cut off from others, it ends
  connection_.write();
  connection_ = standby_->take_stream();
  introduction_ = standby_->take_introduction();
  standby_.reset();
  standby_address_ = {};
  alone_since_.reset();
  Standing standing{.generation = roster_.generation, .age = age_, .completed = completed_};
  for (const Member& member : roster_.members) standing.members.push_back(member.process);
  connection_.send(standing);
  if (joining_) connection_.send(*joining_);
  if (!joining_ && !settled_ && roster_.generation > 0 && !interruption_)
    interruption_ = Interruption{
        roster_.generation, {}, "the rendezvous server was lost while the session started"};
  for (const Message& message : std::exchange(unsent_, {}))
    if (!std::holds_alternative<Join>(message) && !std::holds_alternative<Contribution>(message))
      connection_.send(message);
}

/// Keeps the message for the standby if the server is lost.
void TcpRendezvous::send(const Message& message) {
  if (standby_address_.length != 0 && connection_.closed())
    unsent_.push_back(message);
  else
    connection_.send(message);
}

}  // namespace kolo::internal::rendezvous
