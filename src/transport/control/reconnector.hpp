// SPDX-License-Identifier: Apache-2.0
// Makes broken connections between ranks again.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "node/file_descriptor.hpp"
#include "node/not_inherited.hpp"
#include "transport/peer_connector.hpp"

namespace kolo::internal::transport {

/// With what a rank has made its connections, so that it can make them again.
struct ReconnectOptions {
  int rank = -1;
  Secret secret{};
  std::shared_ptr<const Listeners> listeners{};  // where other ranks have called this one

  // Seam for tests.
  PeerConnector::Connect connect{};
};

/// The side that has connected first calls again, until the other side answers. Both sides prove in
/// a handshake, as the first time, that they belong to the session. Then each says how many frames
/// it has taken: the caller first, so that a call changes nothing until the caller has chosen it.
/// These records have tags under the keys of the new handshake and of the first connection, so none
/// can be repeated, or come from another connection.
///
/// Meanwhile each side tries whether the other rank still listens where it did. If its host refuses
/// connections there, its process has ended. No answer proves nothing. The listeners stay open.
///
/// Never blocks, and costs nothing while all connections hold. Not thread-safe.
class Reconnector {
 public:
  /// A rank with a connection.
  struct Peer {
    int rank;
    std::string host;
    FrameKeys keys;                          // of the first connection
    bool is_called = false;                  // by this rank; otherwise it calls
    std::vector<SocketAddress> addresses{};  // where this rank calls it
    SocketAddress door{};                    // where it listens; AF_UNSPEC: unknown
  };

  /// The connections that are made again, and the frames that they carry.
  class Edges {
   public:
    virtual ~Edges() = default;
    /// True if the rank can have taken this number of frames, and its connection may be replaced.
    [[nodiscard]] virtual bool can_resume(int rank, std::uint64_t taken) const = 0;
    /// Ends the present connection, if it has not ended, as if it had broken. Returns the number of
    /// frames taken.
    [[nodiscard]] virtual std::uint64_t interrupt(int rank) = 0;
    virtual void resume(int rank, node::FileDescriptor socket, std::uint64_t taken) = 0;
    /// The rank's process has ended.
    virtual void end(int rank) = 0;
  };

  /// `edges` must outlive the object. Throws BackendError if the system has no descriptors left.
  Reconnector(ReconnectOptions options, std::vector<Peer> peers, Edges& edges);

  /// Becomes readable when there is something to do.
  [[nodiscard]] int descriptor() const { return epoll_.get(); }
  /// The connection to this rank is broken.
  void begin(int rank);
  /// The connection to this rank need not be made again.
  void stop(int rank);
  /// Does what there is to do.
  void step();

 private:
  using TimePoint = std::chrono::steady_clock::time_point;

  struct Record;
  /// A connection whose handshake is complete, and on which the other side's record is awaited.
  struct Candidate {
    int rank = -1;
    node::FileDescriptor socket{};
    FrameKeys keys{};
    TimePoint since = std::chrono::steady_clock::now();
    bool over = false;
    std::array<std::byte, 24> received{};
    std::size_t bytes_received = 0;
  };
  struct Route {
    Peer peer;
    bool broken = false;
    // Of the side that calls.
    std::unique_ptr<PeerConnector> call{};
    TimePoint called_at{};
    TimePoint next_call{};
    std::chrono::milliseconds between_calls{};
    std::optional<Candidate> chosen{};
    // Tries whether the rank still listens.
    bool knows_door = false;  // somebody has listened there
    node::FileDescriptor knock{};
    TimePoint knocked_at{};
    std::chrono::milliseconds between_knocks{};
  };

  void watch(int descriptor, std::uint32_t events);
  void watch_progress();
  void answer(TimePoint now);
  void turn_away();
  void take_record(Candidate& candidate);
  void call(Route& route, TimePoint now);
  void await_answer(Route& route, TimePoint now);
  void knock(Route& route, TimePoint now);
  void resume(Route& route, node::FileDescriptor socket, std::uint64_t taken);
  void prepare_to_wait();
  [[nodiscard]] Route* find(int rank);
  [[nodiscard]] static bool send_record(const Candidate& to, const FrameKeys& keys,
                                        std::uint64_t taken);
  [[nodiscard]] static std::optional<std::uint64_t> receive_record(Candidate& from,
                                                                   const FrameKeys& keys);

  ReconnectOptions options_;
  Edges& edges_;
  std::vector<Route> routes_{};
  PeerConnector answers_;
  std::list<Candidate> candidates_{};  // of callers
  node::FileDescriptor epoll_;
  node::FileDescriptor timer_;
  bool timer_runs_ = false;
  std::vector<node::NotInherited> not_inherited_{};
};

}  // namespace kolo::internal::transport
