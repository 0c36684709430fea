// SPDX-License-Identifier: Apache-2.0
#include "program.hpp"

#include <fmt/format.h>

#include "base/format.hpp"

namespace kolo::internal::simulation {
namespace {

std::string describe(const Operation& operation, int number) {
  const Descriptor& descriptor = operation.descriptor;
  std::string text = fmt::format("{}: {}", number, kolo::internal::to_string(descriptor.type));
  text += operation.name.empty() ? " without a name" : " \"" + operation.name + '"';
  if (operation.set != 0) text += fmt::format(" of set {}", operation.set);
  for (const TensorSpec& tensor : descriptor.tensors)
    text += fmt::format(" {}{}", kolo::internal::to_string(tensor.dtype),
                        kolo::internal::to_string(tensor.shape));
  if (descriptor.op != ReduceOp::sum)
    text += fmt::format(" {}", kolo::internal::to_string(descriptor.op));
  if (descriptor.root >= 0) text += fmt::format(" root {}", descriptor.root);
  if (descriptor.prescale != 1) text += fmt::format(" prescale {}", descriptor.prescale);
  if (descriptor.step != 0) text += fmt::format(" step {}", descriptor.step);
  if (descriptor.alone) text += " alone";
  if (!descriptor.ranks.empty()) text += " ranks " + to_string(descriptor.ranks);
  return text;
}

std::string describe(const Act& act) {
  switch (act.kind) {
    case Act::Kind::compute: return fmt::format("{}us", act.time.count() / 1000);
    case Act::Kind::submit: return fmt::format("{}", act.what);
    case Act::Kind::insist: return fmt::format("{}!", act.what);
    case Act::Kind::wait: return "wait";
    case Act::Kind::meet: return "meet";
    case Act::Kind::leave: return "leave";
    case Act::Kind::die: return "die";
  }
  return "?";
}

}  // namespace

std::string to_string(const Program& program) {
  const Settings& settings = program.settings;
  std::string text = fmt::format(
      "seed {}, hosts of the ranks [{}], arity {}, fusion threshold {}, cache {}{}, stalls end "
      "after "
      "{} ms\n",
      settings.seed, fmt::join(settings.node_of, " "), settings.arity, settings.fusion_threshold,
      settings.cache_capacity, settings.board ? ", a board" : "",
      settings.stall_shutdown.count() / 1000000);
  for (std::size_t set = 0; set < program.sets.size(); ++set)
    text += fmt::format("set {}: ranks {}\n", set + 1, to_string(program.sets[set]));
  for (const Pause& pause : program.pauses)
    text += fmt::format(
        "{} stopped after {} us for {} ms\n",
        pause.rank == Pause::all ? "all ranks are" : fmt::format("rank {} is", pause.rank),
        pause.at.count() / 1000, pause.length.count() / 1000000);
  std::vector<bool> used(program.operations.size());
  for (const Script& script : program.scripts)
    for (const Act& act : script)
      if (act.kind == Act::Kind::submit || act.kind == Act::Kind::insist)
        used[static_cast<std::size_t>(act.what)] = true;
  for (std::size_t i = 0; i < used.size(); ++i)
    if (used[i]) text += "operation " + describe(program.operations[i], static_cast<int>(i)) + '\n';
  for (std::size_t rank = 0; rank < program.scripts.size(); ++rank) {
    text += fmt::format("rank {}:", rank);
    for (const Act& act : program.scripts[rank]) text += ' ' + describe(act);
    text += '\n';
  }
  return text;
}

}  // namespace kolo::internal::simulation
