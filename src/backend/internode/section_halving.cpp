// SPDX-License-Identifier: Apache-2.0
#include "backend/internode/section_halving.hpp"

#include <utility>

#include "base/dtype.hpp"

namespace kolo::internal::backend::internode {

SectionHalving::SectionHalving(const Task& task)
    : task_(task), sections_(task.exchange.take(bytes_of(task.owners.size()))) {
  int begin = 0;
  int sections = task_.owners.size();
  for (const StepGroup& group : step_groups(task_.owners.size())) {
    sections /= group.factor;
    steps_.push_back({.group = group, .begin = begin, .part = sections});
    begin += group.own_digit(task_.owners) * sections;
  }
  for (Step& step : steps_) {
    step.versions = task_.exchange.take((step.group.factor - 1) * bytes_of(step.part));
    std::byte* version = step.versions;
    for (int digit = 0; digit < step.group.factor; ++digit) {
      if (digit == step.group.own_digit(task_.owners)) continue;
      task_.exchange.receive(step.group.rank_with(task_.owners, digit), task_.lane, version,
                             bytes_of(step.part), step.receiving);
      version += bytes_of(step.part);
    }
  }
}

std::byte* SectionHalving::section(int owner) const {
  int place = 0;
  for (const Step& step : steps_)
    place += owner / step.group.distance % step.group.factor * step.part;
  return sections_ + bytes_of(place);
}

bool SectionHalving::advance() {
  while (step_ < steps_.size() && steps_[step_].receiving == 0) {
    combine_part(steps_[step_]);
    if (++step_ < steps_.size()) send_parts(steps_[step_]);
  }
  return step_ == steps_.size();
}

void SectionHalving::send_parts(const Step& step) {
  const int own = step.group.own_digit(task_.owners);
  // Each owner starts with its successor, so that not all send to the same one first.
  for (int next = 1; next < step.group.factor; ++next) {
    const int digit = (own + next) % step.group.factor;
    task_.exchange.send(step.group.rank_with(task_.owners, digit), task_.lane, part_of(step, digit),
                        bytes_of(step.part), sending_);
  }
}

/// Data in transmission lies in other parts.
void SectionHalving::combine_part(const Step& step) {
  const int own = step.group.own_digit(task_.owners);
  const std::int64_t elements = step.part * task_.elements;
  std::vector<std::byte*> inputs;
  std::byte* version = step.versions;
  for (int digit = 0; digit < step.group.factor; ++digit) {
    inputs.push_back(digit == own ? part_of(step, own) : version);
    if (digit != own) version += bytes_of(step.part);
  }
  const auto combine = [&](reduction::Inputs group, std::byte* output) {
    reduction::reduce(task_.arithmetic, group, elements, output);
  };
  inputs = combine_group(std::move(inputs), nullptr, combine);
  if (&step == &steps_.back())
    last_inputs_ = std::move(inputs);
  else
    combine(std::vector<const std::byte*>(inputs.begin(), inputs.end()), part_of(step, own));
}

void SectionHalving::give_back() {
  task_.exchange.give_back(sections_);
  for (const Step& step : steps_) task_.exchange.give_back(step.versions);
}

std::int64_t SectionHalving::bytes_of(int sections) const {
  return sections * task_.elements * signed_size_of(task_.arithmetic.dtype);
}

std::byte* SectionHalving::part_of(const Step& step, int digit) const {
  return sections_ + bytes_of(step.begin + digit * step.part);
}

}  // namespace kolo::internal::backend::internode
