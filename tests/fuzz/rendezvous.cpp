// SPDX-License-Identifier: Apache-2.0
// Messages to the rendezvous server: each that can be read comes back the same when it is written
// and read again, and none from a stranger makes the server more than refuse it.
#include "../rendezvous/samples.hpp"
#include "../rendezvous/shake_hands.hpp"
#include "rendezvous/message.hpp"
#include "rendezvous/server/server.hpp"
#include "target.hpp"

namespace kolo::internal::fuzz {
namespace {

using rendezvous::Action;
using rendezvous::decode;
using rendezvous::encode;
using rendezvous::HandshakeStep;
using rendezvous::Hello;
using rendezvous::Message;
using rendezvous::ProtocolError;
using rendezvous::Refusal;
using rendezvous::sample_messages;
using rendezvous::Send;
using rendezvous::Server;
using rendezvous::ServerOptions;
using rendezvous::shake_hands;

ServerOptions fuzz_options(bool has_agents) {
  ServerOptions options{
      .version = "0.1.0", .np = 2, .elastic = has_agents, .has_agents = has_agents};
  options.min_np = 1;
  options.max_np = 2;
  options.secret.fill(std::byte{7});
  return options;
}

/// Further messages, too: those of the same sender, and, if the first one is a hello, those of a
/// sender that knows the secret.
void tell_server(const Message& message, bool has_agents) {
  Server server(fuzz_options(has_agents), [] { return std::uint64_t{4}; });
  server.on_open(1, "a stranger", {});
  server.on_message(1, message, {});
  for (const Action& action : server.take()) {
    const auto* send = std::get_if<Send>(&action);
    require(send == nullptr || std::holds_alternative<Refusal>(*send->message) ||
                std::holds_alternative<HandshakeStep>(*send->message),
            "a stranger is answered");
  }
  require(!server.finished() && server.generation() == 0, "a stranger changes the job");
  const auto* const hello = std::get_if<Hello>(&message);
  if (hello != nullptr) {
    server.on_open(2, "a process", {});
    shake_hands(server, 2, *hello, {}, fuzz_options(true).secret);
  }
  for (const Message& next : sample_messages())
    for (const rendezvous::Link link : {1U, 2U}) server.on_message(link, next, {});
  server.on_message(1, message, {});
  static_cast<void>(server.next_time());
  server.on_close(1, "closed", {});
}

bool run(Bytes bytes) {
  Message first;
  try {
    first = decode(std::as_bytes(bytes));
  } catch (const ProtocolError&) {
    return false;
  }
  require(decode(encode(first)) == first,
          "a message is another one when it is written and read again");
  tell_server(first, true);
  tell_server(first, false);
  return true;
}

std::vector<Seed> seeds() {
  std::vector<Seed> seeds;
  for (const Message& message : sample_messages()) {
    const rendezvous::Bytes bytes = encode(message);
    seeds.push_back({"kind-" + std::to_string(message.index()),
                     {reinterpret_cast<const char*>(bytes.data()), bytes.size()}});
  }
  return seeds;
}

}  // namespace

const Target rendezvous_target{.name = "rendezvous", .max_bytes = 2048, .run = run, .seeds = seeds};

}  // namespace kolo::internal::fuzz
