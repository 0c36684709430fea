// SPDX-License-Identifier: Apache-2.0
#include "server_search.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <kolo/error.hpp>
#include <thread>
#include <utility>

#include "rendezvous/introduction.hpp"

namespace kolorun {
namespace {

using namespace std::chrono_literals;
using std::chrono::nanoseconds;
using std::chrono::steady_clock;

constexpr nanoseconds min_patience = 300ms;  // per address
constexpr nanoseconds max_patience = 3s;
constexpr nanoseconds min_patience_for_answer = 2s;  // the server may be busy
constexpr nanoseconds patience_with_end = 300ms;
constexpr nanoseconds silence = 30s;
constexpr nanoseconds silent_search = 3s;
constexpr nanoseconds between_rounds = 50ms;
// The search goes on for this long while a server answers that does not know the secret: the right
// one may still start, and a stranger must not end the search at once.
// It is longer than a server that ends waits for its agents, which may be that of the job before.
constexpr nanoseconds patience_with_strangers = 20s;
// Each attempt is a line in the log of such a server.
constexpr nanoseconds between_rounds_with_strangers = 4s;

struct Answer {
  std::optional<FoundServer> server{};
  rendezvous::Refusal refusal{};
  std::string distrust{};  // why the server is not trusted
};

Answer greet(const transport::Endpoint& at, const rendezvous::Hello& hello,
             std::optional<rendezvous::Vote> vote, const rendezvous::Secret& secret,
             nanoseconds patience, nanoseconds patience_for_answer) {
  FoundServer found{rendezvous::MessageStream(transport::connect_to(at, patience)), at, {}};
  rendezvous::Introduction introduction(secret, hello, transport::to_string(at));
  transport::tune(found.connection.descriptor(), silence);
  introduction.begin(found.connection);
  Answer answer;
  bool answered = false;
  const auto until = steady_clock::now() + patience_for_answer;
  while (!answered && !found.connection.closed()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - steady_clock::now());
    if (left <= 0ms)
      throw kolo::BackendError(
          fmt::format("{} does not answer as a rendezvous server", transport::to_string(at)));
    pollfd waits{.fd = found.connection.descriptor(), .events = POLLIN, .revents = 0};
    ::poll(&waits, 1, static_cast<int>(left.count()));
    // Messages after the welcome are for the agent.
    found.connection.read([&](const rendezvous::Message& message) {
      if (!introduction.passes(found.connection, message)) {
        answer.distrust = introduction.problem();
        answered = !answer.distrust.empty();
        if (vote && introduction.is_trusted()) found.connection.send(*std::exchange(vote, {}));
        return !answered;
      }
      answered = true;
      if (const auto* refusal = std::get_if<rendezvous::Refusal>(&message))
        answer.refusal = *refusal;
      else if (const auto* welcome = std::get_if<rendezvous::Welcome>(&message))
        found.welcome = *welcome;
      else
        answer.refusal.reason = "it answers a hello with another message than a welcome";
      return false;
    });
  }
  if (!answered)
    throw kolo::BackendError(
        fmt::format("{}: {}", transport::to_string(at), found.connection.reason()));
  if (answer.refusal.reason.empty() && answer.distrust.empty()) answer.server = std::move(found);
  return answer;
}

/// The reasons why no server has accepted the agent so far.
class Reasons {
 public:
  /// `most`: the maximum time for which a server may answer that the agent should try again later.
  explicit Reasons(nanoseconds most) : most_(most) {}

  void begin_round() {
    refusal_.reset();
    distrust_.clear();
  }
  void add(const std::string& error) { reason_ = error; }
  void add(const transport::Endpoint& at, const rendezvous::Refusal& refusal) {
    reason_ = fmt::format("the rendezvous server at {} refuses this host: {}",
                          transport::to_string(at), refusal.reason);
    refusal_ = refusal;
  }
  void add_distrust(const std::string& why) { reason_ = distrust_ = why; }
  /// Throws if a server has refused the agent for good in this round, or if servers that are not
  /// trusted have answered for too long.
  void throw_if_final() {
    const auto now = steady_clock::now();
    if (distrust_.empty())
      distrusted_since_.reset();
    else if (!distrusted_since_)
      distrusted_since_ = now;
    if (distrusted_since_ && now - *distrusted_since_ >= patience_with_strangers)
      throw kolo::BackendError(distrust_);
    if (!refusal_) refused_since_ = now;
    if (refusal_ && now - refused_since_ >= std::min(refusal_->retry, most_))
      throw kolo::BackendError(reason_);
  }
  [[nodiscard]] nanoseconds pause() const {
    return distrust_.empty() ? between_rounds : between_rounds_with_strangers;
  }
  [[nodiscard]] const std::string& text() const { return reason_; }

 private:
  nanoseconds most_;
  steady_clock::time_point refused_since_ = steady_clock::now();
  std::optional<steady_clock::time_point> distrusted_since_{};
  std::optional<rendezvous::Refusal> refusal_{};
  std::string distrust_{};
  std::string reason_{};
};

}  // namespace

bool has_ended(const transport::SystemAddress& server) {
  const auto until = steady_clock::now() + patience_with_end;
  while (true) {
    const transport::Connecting attempt = transport::begin_to_connect(server);
    int error = attempt.error;
    if (error == EINPROGRESS)
      error =
          transport::end_of_connecting(attempt.socket.get(), patience_with_end).value_or(ETIMEDOUT);
    if (error == ECONNREFUSED) return true;
    // The kernel closes what a killed process has open one by one.
    if (error != 0 || steady_clock::now() >= until) return false;
    std::this_thread::sleep_for(between_rounds);
  }
}

StandbyState ask_standby(const transport::Endpoint& standby, const rendezvous::Hello& hello,
                         const rendezvous::Secret& secret) {
  try {
    const Answer answer = greet(standby, hello, {}, secret, min_patience, min_patience_for_answer);
    if (answer.server) return StandbyState::rules;
    const bool guards = answer.distrust.empty() && answer.refusal.guards_job;
    return guards ? StandbyState::guards : StandbyState::idle;
  } catch (const kolo::BackendError&) {
    return StandbyState::idle;
  }
}

std::optional<FoundServer> find_server(const ServerSearch& search) {
  if (search.addresses.empty())
    throw kolo::BackendError(
        "the address of the rendezvous server is not known: --rendezvous HOST:PORT sets it");
  const auto until = steady_clock::now() + search.timeout;
  const auto too_long = steady_clock::now() + silent_search;
  nanoseconds patience = min_patience;
  bool has_said = false;
  Reasons reasons(search.may_be_put_off ? search.timeout : nanoseconds(0));
  while (true) {
    reasons.begin_round();
    for (const transport::Endpoint& at : search.addresses) {
      if (!search.goes_on()) return std::nullopt;
      const nanoseconds left = until - steady_clock::now();
      try {
        Answer answer = greet(at, search.hello, search.vote, search.secret,
                              std::clamp<nanoseconds>(left, 10ms, patience),
                              search.vote ? std::max<nanoseconds>(left, 10ms)
                                          : std::max(patience, min_patience_for_answer));
        if (answer.server) return std::move(answer.server);
        if (answer.distrust.empty())
          reasons.add(at, answer.refusal);
        else
          reasons.add_distrust(answer.distrust);
      } catch (const kolo::BackendError& error) {
        reasons.add(error.what());
      }
    }
    reasons.throw_if_final();
    const std::string why =
        reasons.text() + (search.no_server.empty() ? "" : "; and here " + search.no_server);
    if (steady_clock::now() >= until)
      throw kolo::BackendError(fmt::format("no rendezvous server was found within {} s: {}",
                                           std::chrono::duration<double>(search.timeout).count(),
                                           why));
    if (steady_clock::now() >= too_long && !std::exchange(has_said, true))
      search.say(fmt::format("still looking for the rendezvous server: {}", why));
    // Waits, because some attempts fail immediately, such as an unknown host name.
    std::this_thread::sleep_for(reasons.pause());
    patience = std::min(2 * patience, max_patience);
  }
}

}  // namespace kolorun
