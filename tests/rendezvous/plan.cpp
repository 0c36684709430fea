// SPDX-License-Identifier: Apache-2.0
#include "plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace kolo::internal::rendezvous {
namespace {

using namespace std::chrono_literals;

/// The same numbers with every standard library.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : engine_(seed) {}
  int to(int most) { return static_cast<int>(engine_() % static_cast<std::uint64_t>(most + 1)); }
  bool one_in(int n) { return to(n - 1) == 0; }
  Time time(Time most) {
    return Time(
        static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(most.count() + 1)));
  }
  std::uint64_t number() { return engine_(); }

 private:
  std::mt19937_64 engine_;
};

int draw_size(Dice& dice) {
  if (dice.one_in(2000)) return 100 + dice.to(900);
  if (dice.one_in(40)) return 13 + dice.to(51);
  return 2 + dice.to(8);
}

void draw_hosts(Dice& dice, int slots, Plan& plan) {
  const int each = 1 + dice.to(std::min(slots, 32) - 1);
  for (; slots > 0; slots -= each) plan.slots.push_back(std::min(each, slots));
}

ServerOptions draw_options(Dice& dice, int size) {
  ServerOptions options;
  options.version = "1";
  options.job = "this";
  options.np = options.min_np = options.max_np = size;
  options.elastic = !dice.one_in(4);
  options.has_agents = options.elastic || !dice.one_in(3);
  if (options.elastic) {
    options.min_np = 1 + dice.to(size - 1);
    options.max_np = size + (dice.one_in(2) ? dice.to(4) : 0);
    if (dice.one_in(10)) options.reset_limit = dice.to(3);
  }
  options.start_timeout = 120s;
  options.elastic_timeout = 100s;
  options.collective_timeout = 60s;
  for (std::byte& byte : options.secret) byte = static_cast<std::byte>(dice.number());
  return options;
}

Fault draw_fault(Dice& dice, const Plan& plan) {
  const Time span = 2 * plan.step * static_cast<int>(plan.commits) + 400ms;
  Fault fault{.kind = static_cast<FaultKind>(dice.to(fault_kinds - 1)),
              .at = dice.one_in(4) ? dice.time(30s) : dice.time(span),
              .length = dice.one_in(2) ? dice.time(2s) : dice.time(60s),
              .which = dice.number()};
  const bool of_agent = fault.kind == FaultKind::agent || fault.kind == FaultKind::cut ||
                        fault.kind == FaultKind::removal || fault.kind == FaultKind::host;
  if (of_agent && !plan.options.has_agents) fault.kind = FaultKind::kill;
  return fault;
}

}  // namespace

Plan make_plan(std::uint64_t seed) {
  Dice dice(seed);
  Plan plan{.seed = seed};
  const int size = draw_size(dice);
  plan.options = draw_options(dice, size);
  const bool spare = plan.options.elastic && dice.one_in(2);
  draw_hosts(dice, size + (spare ? dice.to(size) : 0), plan);
  plan.commits = 1 + static_cast<std::uint64_t>(dice.to(size > 100 ? 2 : 7));
  plan.step = 1ms + dice.time(dice.one_in(3) ? 2s : 100ms);
  plan.delay = 1us + dice.time(dice.one_in(4) ? 200ms : 1ms);
  plan.encodes = dice.one_in(6);
  plan.rejoins = dice.one_in(2);
  const int faults = dice.one_in(6) ? 0 : dice.to(plan.options.elastic ? 6 : 2);
  for (int i = 0; i < faults; ++i) plan.faults.push_back(draw_fault(dice, plan));
  // Two of them at the same moment: one while the other is handled.
  if (faults > 1 && dice.one_in(3))
    plan.faults[0].at = plan.faults[1].at + dice.time(2 * plan.delay);
  return plan;
}

std::string to_string(const Plan& plan) {
  static constexpr std::array<std::string_view, fault_kinds> names{
      "kill", "stop",    "fail", "quit",     "hang", "agent",
      "cut",  "removal", "host", "stranger", "twin"};
  std::string text =
      fmt::format("seed {}: np {} ({} to {}), {}, {} hosts, {} commits, step {} us, delay {} us\n",
                  plan.seed, plan.options.np, plan.options.min_np, plan.options.max_np,
                  plan.options.elastic ? "elastic" : "fixed", plan.slots.size(), plan.commits,
                  plan.step.count() / 1000, plan.delay.count() / 1000);
  for (const Fault& fault : plan.faults)
    text += fmt::format("  {} ms: {} {} for {} ms\n", fault.at.count() / 1'000'000,
                        names[static_cast<std::size_t>(fault.kind)], fault.which % 1000,
                        fault.length.count() / 1'000'000);
  return text;
}

}  // namespace kolo::internal::rendezvous
