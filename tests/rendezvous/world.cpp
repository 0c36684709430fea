// SPDX-License-Identifier: Apache-2.0
#include "world.hpp"

#include <algorithm>
#include <utility>

#include "job_secret.hpp"
#include "rendezvous/message.hpp"

namespace kolo::internal::rendezvous {
namespace {

using namespace std::chrono_literals;

constexpr Time longest_run = 5000s;
constexpr std::uint64_t most_events = 5'000'000;

}  // namespace

World::World(const Plan& plan)
    : plan_(plan),
      random_(plan.seed ^ 0x9e3779b97f4a7c15U),
      server_(plan.options, [this] { return random_(); }),
      judge_(plan.options.elastic ? plan.options.min_np : plan.options.np,
             plan.options.elastic ? plan.options.max_np : plan.options.np) {}

void World::run() {
  if (plan_.options.has_agents) {
    for (std::size_t host = 0; host < plan_.slots.size(); ++host) {
      agents_.push_back({.host = "host" + std::to_string(host), .slots = plan_.slots[host]});
      at(any(50ms), [this, host] { start_agent(host); });
    }
  } else {
    agents_.resize(1);
    for (int rank = 0; rank < plan_.options.np; ++rank)
      at(any(50ms), [this, rank] { start_process(0, 0, rank); });
  }
  for (const Fault& fault : plan_.faults) at(fault.at, [this, &fault] { inject(fault); });
  schedule_tick();
  while (!queue_.empty()) {
    Event event = std::move(const_cast<Event&>(queue_.top()));
    queue_.pop();
    now_ = event.when;
    if (now_ > longest_run || ++events_ > most_events)
      throw Violation("ends", "the job goes on and on");
    event.what();
  }
  const auto alive = std::ranges::count_if(processes_, [](const Proc& p) { return !p.ended; });
  judge_.conclude(faults_, done_, static_cast<int>(alive));
}

void World::at(Time when, std::function<void()> what) {
  queue_.push({when, order_++, std::move(what)});
}

Time World::any(Time most) {
  return Time(static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(most.count() + 1)));
}

Hello World::hello() const { return {.version = plan_.options.version}; }

// ---- the network: connections keep the order, and differ in their delays ----

Time World::deliverable(std::size_t host) const { return std::max(now_, agents_[host].cut_until); }

Link World::open(Channel::Owner owner, std::size_t index, std::size_t host) {
  const Link link = ++last_link_;
  Channel& channel = channels_[link];
  channel = {.owner = owner, .index = index, .host = host};
  channel.last_up = deliverable(host) + any(plan_.delay);
  at(channel.last_up, [this, link] {
    server_.on_open(link, "somewhere", now_);
    drain();
  });
  return link;
}

void World::send_up(Link link, const Message& message) {
  Channel& channel = channels_.at(link);
  if (!channel.client_open) return;
  channel.last_up = std::max(channel.last_up, deliverable(channel.host) + any(plan_.delay));
  at(channel.last_up, [this, link, sent = plan_.encodes ? decode(encode(message)) : message] {
    arrive_at_server(link, sent);
  });
}

void World::arrive_at_server(Link link, const Message& message) {
  const Channel& channel = channels_.at(link);
  if (!channel.server_open) return;
  if (channel.owner == Channel::Owner::process) {
    const ProcessId id = processes_[channel.index].id;
    if (const auto* join = std::get_if<Join>(&message)) judge_.on_join(id, join->commit);
    if (const auto* part = std::get_if<Contribution>(&message)) judge_.on_contribution(id, *part);
    if (std::holds_alternative<Leave>(message)) judge_.on_leave(id);
  }
  server_.on_message(link, message, now_);
  drain();
}

void World::close_up(Link link) {
  Channel& channel = channels_.at(link);
  if (!std::exchange(channel.client_open, false)) return;
  channel.last_up = std::max(channel.last_up, deliverable(channel.host) + any(plan_.delay));
  at(channel.last_up, [this, link] {
    Channel& from = channels_.at(link);
    if (!std::exchange(from.server_open, false)) return;
    if (from.owner == Channel::Owner::process) judge_.on_closed(processes_[from.index].id);
    server_.on_close(link, "it is closed", now_);
    drain();
  });
}

void World::drain() {
  for (const Action& action : server_.take()) {
    if (const auto* send = std::get_if<Send>(&action)) do_send(*send);
    if (const auto* close = std::get_if<Close>(&action)) do_close(close->link);
    if (const auto* finish = std::get_if<Finish>(&action)) judge_.on_finish(finish->status);
  }
  schedule_tick();
}

void World::schedule_tick() {
  const std::optional<Time> next = server_.next_time();
  if (!next || (tick_ && *tick_ <= *next)) return;
  tick_ = std::max(*next, now_);
  at(*tick_, [this, when = *tick_] {
    if (tick_ != when) return;
    tick_.reset();
    server_.on_time(now_);
    drain();
  });
}

void World::do_send(const Send& send) {
  Channel& channel = channels_.at(send.link);
  judge_send(channel, *send.message);
  channel.last_down = std::max(channel.last_down, deliverable(channel.host) + any(plan_.delay));
  auto message = send.message;
  if (plan_.encodes) message = std::make_shared<const Message>(decode(encode(*message)));
  at(channel.last_down, [this, link = send.link, message] {
    const Channel& to = channels_.at(link);
    if (!to.client_open) return;
    const auto* const step = std::get_if<HandshakeStep>(message.get());
    if (step != nullptr && to.owner != Channel::Owner::process) on_step(link, *step);
    if (to.owner == Channel::Owner::agent) to_agent(to.index, *message);
    if (to.owner == Channel::Owner::process) to_process(to.index, message);
  });
}

void World::introduce(Link link, const Hello& hello) {
  Channel& channel = channels_.at(link);
  channel.hello = hello;
  channel.handshake.emplace(make_client(plan_.options.secret));
  send_up(link, HandshakeStep{channel.handshake->begin()});
}

void World::on_step(Link link, const HandshakeStep& step) {
  Channel& channel = channels_.at(link);
  auto proof = channel.handshake->answer(step.bytes);
  if (!proof) throw Violation("secret", "the server does not know it");
  if (channel.owner == Channel::Owner::stranger) proof->back() ^= std::byte{1};
  send_up(link, HandshakeStep{*proof});
  send_up(link, channel.hello);
}

void World::do_close(Link link) {
  Channel& channel = channels_.at(link);
  channel.server_open = false;
  channel.last_down = std::max(channel.last_down, deliverable(channel.host) + any(plan_.delay));
  at(channel.last_down, [this, link] {
    Channel& to = channels_.at(link);
    if (!std::exchange(to.client_open, false)) return;
    if (to.owner == Channel::Owner::agent && to.welcome) end_agent(to.index, 1);
    if (to.owner == Channel::Owner::process) closed_out(to.index);
  });
}

void World::judge_send(Channel& channel, const Message& message) {
  if (channel.owner == Channel::Owner::stranger) {
    if (!std::holds_alternative<Refusal>(message) &&
        !std::holds_alternative<HandshakeStep>(message))
      throw Violation("strangers", "a stranger gets an answer");
    return;
  }
  if (channel.owner == Channel::Owner::agent && std::holds_alternative<Welcome>(message)) {
    require_no_twin(channel.index);
    channel.welcome = true;
  }
  if (const auto* kill = std::get_if<Kill>(&message)) judge_.on_lost(kill->process, kill->reason);
  if (channel.owner != Channel::Owner::process) return;
  Proc& process = processes_[channel.index];
  if (std::holds_alternative<Welcome>(message)) {
    if (process.id == 0) {  // without agents the server numbers them in this order
      process.id = ++last_id_;
      by_id_[process.id] = channel.index;
      if (process.at_fault) judge_.on_fault(process.id);
    }
    judge_.on_welcome(process.id);
  }
  if (const auto* roster = std::get_if<Roster>(&message)) judge_.on_roster(process.id, *roster);
  if (const auto* result = std::get_if<Result>(&message)) judge_.on_result(process.id, *result);
  if (const auto* over = std::get_if<Interruption>(&message))
    judge_.on_interruption(process.id, *over);
  if (const auto* change = std::get_if<Announcement>(&message))
    judge_.on_announcement(process.id, *change);
  if (const auto* refusal = std::get_if<Refusal>(&message); refusal && process.id != 0)
    if (!judge_.status()) judge_.on_lost(process.id, refusal->reason);
}

}  // namespace kolo::internal::rendezvous
