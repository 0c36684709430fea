// SPDX-License-Identifier: Apache-2.0
#include "server_search.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <kolo/error.hpp>
#include <thread>
#include <utility>

namespace kolorun {
namespace {

using namespace std::chrono_literals;
using std::chrono::nanoseconds;
using std::chrono::steady_clock;

constexpr nanoseconds min_patience = 300ms;  // with one address
constexpr nanoseconds max_patience = 3s;
constexpr nanoseconds min_patience_for_answer = 2s;  // the server may be busy
constexpr nanoseconds silence = 30s;
constexpr nanoseconds silent_search = 3s;
constexpr nanoseconds between_rounds = 50ms;

struct Answer {
  std::optional<FoundServer> server{};
  std::string refusal{};
};

Answer greet(const rendezvous::Endpoint& at, const rendezvous::Hello& hello,
             const rendezvous::Secret& secret, nanoseconds patience) {
  FoundServer found{rendezvous::Connection(rendezvous::connect_to(at, patience)), at, {}};
  rendezvous::tune(found.connection.descriptor(), silence);
  found.connection.send(hello);
  Answer answer;
  bool answered = false;
  const auto until = steady_clock::now() + std::max(patience, min_patience_for_answer);
  while (!answered && !found.connection.closed()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - steady_clock::now());
    if (left <= 0ms)
      throw kolo::BackendError(
          fmt::format("{} does not answer as a rendezvous server", rendezvous::to_string(at)));
    pollfd waits{.fd = found.connection.descriptor(), .events = POLLIN, .revents = 0};
    ::poll(&waits, 1, static_cast<int>(left.count()));
    // What follows the welcome is for the agent.
    found.connection.read([&](const rendezvous::Message& message) {
      answered = true;
      if (const auto* refusal = std::get_if<rendezvous::Refusal>(&message))
        answer.refusal = refusal->reason;
      else if (const auto* welcome = std::get_if<rendezvous::Welcome>(&message);
               welcome == nullptr || welcome->secret != rendezvous::second_half(secret))
        answer.refusal = "whoever answers does not know the secret of this job";
      else
        found.welcome = *welcome;
      return false;
    });
  }
  if (!answered)
    throw kolo::BackendError(
        fmt::format("{}: {}", rendezvous::to_string(at), found.connection.reason()));
  if (answer.refusal.empty()) answer.server = std::move(found);
  return answer;
}

}  // namespace

std::optional<FoundServer> find_server(const std::vector<rendezvous::Endpoint>& addresses,
                                       const rendezvous::Hello& hello,
                                       const rendezvous::Secret& secret, nanoseconds timeout,
                                       const std::function<bool()>& goes_on,
                                       const std::function<void(const std::string&)>& say) {
  if (addresses.empty())
    throw kolo::BackendError(
        "the address of the rendezvous server is not known: --rendezvous HOST:PORT sets it");
  const auto until = steady_clock::now() + timeout;
  const auto too_long = steady_clock::now() + silent_search;
  nanoseconds patience = min_patience;
  bool has_said = false;
  std::string reason;
  while (true) {
    std::string refusal;
    for (const rendezvous::Endpoint& at : addresses) {
      if (!goes_on()) return std::nullopt;
      const nanoseconds left = until - steady_clock::now();
      try {
        Answer answer = greet(at, hello, secret, std::clamp<nanoseconds>(left, 10ms, patience));
        if (answer.server) return std::move(answer.server);
        refusal = fmt::format("the rendezvous server at {} refuses this host: {}",
                              rendezvous::to_string(at), answer.refusal);
      } catch (const kolo::BackendError& error) {
        reason = error.what();
      }
    }
    if (!refusal.empty()) throw kolo::BackendError(refusal);
    if (steady_clock::now() >= until)
      throw kolo::BackendError(fmt::format("no rendezvous server was found within {} s: {}",
                                           std::chrono::duration<double>(timeout).count(), reason));
    if (steady_clock::now() >= too_long && !std::exchange(has_said, true))
      say(fmt::format("still looking for the rendezvous server: {}", reason));
    // A name that is not known, say, takes no time.
    std::this_thread::sleep_for(between_rounds);
    patience = std::min(2 * patience, max_patience);
  }
}

}  // namespace kolorun
