// SPDX-License-Identifier: Apache-2.0
#include "messenger/fabric_messenger.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <type_traits>
#include <utility>

#include "kolo/error.hpp"
#include "messenger/fabric_sockets.hpp"

namespace kolo::internal::messenger {
namespace {

using namespace std::chrono_literals;

// A loss is reported only after these times: a control message may arrive that states the cause and
// names the rank that is at fault.
constexpr std::chrono::milliseconds time_for_the_reason{500};
constexpr std::chrono::milliseconds time_for_the_goodbye{3000};
constexpr unsigned calls_between_events = 64;
constexpr int max_reads = 4;  // reads of the completion queue per call

}  // namespace

void FabricChannel::send(int peer, Tag tag, const std::byte* data, std::int64_t bytes,
                         Token token) {
  messenger_.send(*this, peer, tag, data, bytes, token);
}

void FabricChannel::receive(int peer, Tag tag, std::byte* data, std::int64_t bytes, Token token) {
  messenger_.receive({this, token, tag, data, bytes}, peer);
}

void FabricChannel::progress(std::vector<Token>& done) {
  messenger_.drive();
  messenger_.uncollected_ -= static_cast<int>(done_.size());
  done.insert(done.end(), done_.begin(), done_.end());
  done_.clear();
}

FabricMessenger::FabricMessenger(FabricDomain domain, int rank, Endpoints endpoints, bool encrypts)
    : rank_(rank),
      window_(window_among(static_cast<int>(endpoints.size()))),
      domain_(std::move(domain)),
      not_inherited_{node::NotInherited(domain_.event_descriptor()),
                     node::NotInherited(domain_.completion_descriptor())},
      peers_(endpoints.size()) {
  std::vector<const fid_ep*> connected;
  for (const Endpoint& one : endpoints) connected.push_back(one.endpoint.get());
  const std::vector<int> sockets = find_sockets(connected);
  for (std::size_t other = 0; other < endpoints.size(); ++other) {
    Peer& peer = peers_[other];
    peer.rank = static_cast<int>(other);
    peer.endpoint = std::move(endpoints[other].endpoint);
    if (!peer.endpoint) continue;
    peer.sent = FabricSeal(endpoints[other].keys.sent, encrypts);
    peer.received = FabricSeal(endpoints[other].keys.received, encrypts);
    // A child that outlives this process, whether or not it calls exec, must not keep the
    // connection open.
    if (const int socket = sockets[other]; socket >= 0) {
      peer.socket = node::NotInherited(socket);
      ::fcntl(socket, F_SETFD, FD_CLOEXEC);
    }
    peer.receiving.peer = &peer;
    peer.header_buffer.resize(sizeof(TaggedHeader) + max_inline);
    post_header_receive(peer);
  }
}

FabricMessenger::~FabricMessenger() { close(0ns); }

Channel& FabricMessenger::open() {
  if (free_channels_.empty()) {
    free_channels_.reserve(channels_.size() + 1);  // `release` must not throw
    free_channels_.push_back(&channels_.emplace_back(*this));
  }
  FabricChannel& channel = *free_channels_.back();
  free_channels_.pop_back();
  return channel;
}

bool FabricMessenger::release(Channel& given) noexcept {
  auto& channel = static_cast<FabricChannel&>(given);
  if (channel.under_way_ > 0 && !closed_) {
    for (Peer& peer : peers_)
      if (peer.endpoint) {
        // Receives without a message can be withdrawn. If a transfer with the peer has begun, only
        // closing the connection keeps the network from accessing the channel's memory.
        peer.under_way -= peer.inbox.withdraw(channel);
        if (peer.inbox.receives(channel) || sends(peer, channel) ||
            (peer.target && peer.target->channel == &channel))
          give_up(peer);
      }
  }
  under_way_ -= std::exchange(channel.under_way_, 0);
  uncollected_ -= static_cast<int>(channel.done_.size());
  channel.done_.clear();
  free_channels_.push_back(&channel);
  return true;
}

bool FabricMessenger::sends(const Peer& peer, const FabricChannel& channel) const {
  const auto is_its = [&](const auto& one) { return one.channel == &channel; };
  return std::ranges::any_of(peer.outbox, is_its) || std::ranges::any_of(peer.offers, is_its) ||
         std::ranges::any_of(operations_, [&](const Operation& operation) {
           return operation.in_flight && operation.peer == &peer && is_its(operation);
         });
}

bool FabricMessenger::progress() {
  // The step of a channel has already driven all transfers since the last call.
  if (std::exchange(driven_, false)) return false;
  const bool moved = drive();
  driven_ = false;
  return moved;
}

std::vector<int> FabricMessenger::descriptors() const {
  return {domain_.event_descriptor(), domain_.completion_descriptor()};
}

bool FabricMessenger::may_sleep() {
  if (closed_) return true;
  read_events();
  // Uncollected tokens are work that no descriptor shows.
  if (uncollected_ > 0) return false;
  std::array<fid*, 2> queues{&domain_.events->fid, &domain_.completions->fid};
  return ::fi_trywait(domain_.fabric.get(), queues.data(), queues.size()) == FI_SUCCESS;
}

const Failure* FabricMessenger::loss() const {
  if (!loss_ || std::chrono::steady_clock::now() < loss_counts_at_) return nullptr;
  return &*loss_;
}

void FabricMessenger::close(std::chrono::nanoseconds patience) noexcept {
  if (closed_) return;
  try {
    for (Peer& peer : peers_)
      if (peer.endpoint) put_note(peer, Kind::goodbye);
    if (patience > 0ns) wait_for_goodbyes(std::chrono::steady_clock::now() + patience);
  } catch (const std::exception&) {  // the connections are closed anyway
  }
  closed_ = true;
  // Closing the endpoints ends the transfers without completions.
  for (Peer& peer : peers_) close_endpoint(peer);
  try {
    domain_.drain();  // otherwise the descriptors stay readable, and objects of unread events leak
  } catch (const std::exception&) {
  }
}

bool FabricMessenger::awaits_goodbyes() const {
  return std::ranges::any_of(peers_, [](const Peer& peer) {
    return peer.endpoint && (!peer.said_goodbye || !peer.outbox.empty());
  });
}

void FabricMessenger::wait_for_goodbyes(TimePoint until) {
  while (awaits_goodbyes()) {
    if (drive()) continue;
    if (std::chrono::steady_clock::now() >= until) return;
    if (!may_sleep()) continue;
    std::array<pollfd, 2> waiting{
        pollfd{.fd = domain_.event_descriptor(), .events = POLLIN, .revents = 0},
        pollfd{.fd = domain_.completion_descriptor(), .events = POLLIN, .revents = 0}};
    ::poll(waiting.data(), waiting.size(), 5);
  }
}

bool FabricMessenger::drive() {
  if (closed_) return false;
  driven_ = true;
  const bool moved = read_completions();
  // Events are rare, so most calls without completions do not look for them.
  if (!moved && ++quiet_ % calls_between_events == 0) read_events();
  if (blocked_ > 0)
    for (Peer& peer : peers_) flush(peer);
  return moved;
}

bool FabricMessenger::read_completions() {
  std::array<fi_cq_msg_entry, 16> entries;
  bool moved = false;
  for (int read = 0; read < max_reads; ++read) {
    errno = 0;  // as in `read_event`
    const auto count = ::fi_cq_read(domain_.completions.get(), entries.data(), entries.size());
    if (count == -FI_EAGAIN) break;
    moved = true;
    if (count == -FI_EAVAIL) {
      fi_cq_err_entry error{};
      if (::fi_cq_readerr(domain_.completions.get(), &error, 0) > 0 && error.op_context != nullptr)
        lose(*static_cast<Operation*>(error.op_context)->peer, fabric_error(-error.err));
      continue;
    }
    check_fabric(count, "fi_cq_read");
    for (std::size_t at = 0; at < static_cast<std::size_t>(count); ++at)
      complete(*static_cast<Operation*>(entries[at].op_context), entries[at].len);
  }
  return moved;
}

// The event queue sometimes fails to report the loss of a peer; the errors of transfers then show
// it.
void FabricMessenger::read_events() {
  for (FabricEvent event; read_event(*domain_.events.get(), event); event = {}) {
    if (event.info) domain_.refuse(*event.info);
    if (event.error.empty() && event.kind != FI_SHUTDOWN) continue;
    // Messages that the peer sent before it closed come first, such as a goodbye.
    while (!closed_ && read_completions()) continue;
    for (Peer& peer : peers_)
      if (peer.endpoint && &peer.endpoint->fid == event.object)
        lose(peer, event.error.empty() ? "it was shut down" : event.error);
  }
}

void FabricMessenger::complete(Operation& operation, std::size_t bytes) {
  Peer& peer = *operation.peer;
  operation.in_flight = false;
  if (!peer.endpoint) return;
  switch (operation.kind) {
    case Operation::Kind::send_header:
    case Operation::Kind::send_payload:
      if (operation.channel != nullptr) finish(peer, operation.channel, operation.token);
      give_back(operation);
      break;
    case Operation::Kind::receive_header: take_header(peer, bytes); break;
    case Operation::Kind::receive_payload: take_payload(peer); break;
  }
}

void FabricMessenger::finish(Peer& peer, FabricChannel* channel, Token token) {
  channel->done_.push_back(token);
  --peer.under_way;
  --channel->under_way_;
  --under_way_;
  ++uncollected_;
}

void FabricMessenger::close_endpoint(Peer& peer) {
  peer.socket = {};
  peer.endpoint.reset();
  // The transfers have ended, so their memory may be deregistered. The operations are not reused,
  // since the queue may still hold completions for them.
  for (Operation& operation : operations_)
    if (operation.peer == &peer && std::exchange(operation.in_flight, false))
      for (FabricHandle<fid_mr>& memory : operation.memory) memory.reset();
}

void FabricMessenger::lose(Peer& peer, const std::string& reason) {
  if (!peer.endpoint) return;
  drop(peer);
  // After a goodbye, the end of a connection counts as a loss only if transfers are unfinished.
  if (!peer.said_goodbye || peer.under_way > 0)
    report_loss(peer, fmt::format("the data connection to rank {} was lost ({}): its process ended "
                                  "or its host is unreachable",
                                  peer.rank, reason));
}

/// Closes the connection after an abandoned transfer: the peer may send data that no receive
/// expects.
void FabricMessenger::give_up(Peer& peer) {
  if (!peer.endpoint) return;
  drop(peer);
  if (!peer.said_goodbye || peer.under_way > 0)
    report_loss(
        peer, fmt::format(
                  "this rank closed the data connection to rank {} because it abandoned a transfer",
                  peer.rank));
}

/// Closes the connection after a message that is not the peer's next one.
void FabricMessenger::refuse(Peer& peer) {
  drop(peer);
  report_loss(peer, fmt::format("the data connection to rank {} was closed because one of its "
                                "messages was altered, lost or repeated on the way",
                                peer.rank));
}

void FabricMessenger::drop(Peer& peer) {
  close_endpoint(peer);
  if (!peer.outbox.empty()) --blocked_;
  peer.outbox.clear();
}

void FabricMessenger::report_loss(const Peer& peer, std::string message) {
  if (closed_ || loss_) return;
  // A peer that said goodbye is alive and will report why it has left, so it gets more time.
  loss_counts_at_ = std::chrono::steady_clock::now() +
                    (peer.said_goodbye ? time_for_the_goodbye : time_for_the_reason);
  loss_ = Failure{FailureKind::peer_left, std::move(message), "", RankSet::of(peer.rank)};
}

}  // namespace kolo::internal::messenger
