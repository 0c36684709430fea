// SPDX-License-Identifier: Apache-2.0
// A star of ranks, with the same gradients, delays and wire format as the tree.
#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "negotiation/wire/codec.hpp"
#include "scale.hpp"
#include "support/random.hpp"

namespace kolo::internal::simulation {
namespace {

using negotiation::LogUpdate;
using negotiation::ReadinessReport;

constexpr Time cycle_time = std::chrono::milliseconds(1);

class Star {
 public:
  Star(const std::vector<Gradient>& gradients, int ranks, const ClusterModel& model)
      : gradients_(gradients), ranks_(ranks), model_(model), random_(model.seed) {}

  /// The gradients of these layers become ready, `pause` and a random part of it before each layer.
  StepCost step(const char* name, bool known, const std::vector<std::size_t>& layers, Time pause) {
    StepCost cost{.ranks = ranks_, .step = name};
    const std::size_t count = std::reduce(layers.begin(), layers.end());
    std::vector<std::vector<Time>> ready(static_cast<std::size_t>(ranks_));
    Time last{};
    for (std::vector<Time>& times : ready) {
      Time now{};
      const double most = static_cast<double>(pause.count()) * model_.compute_jitter;
      for (const std::size_t layer : layers) {
        now += pause + Time(random_.below(static_cast<std::size_t>(most) + 1));
        times.insert(times.end(), layer, now);
      }
      last = std::max(last, now);
    }
    std::vector<std::size_t> sent(static_cast<std::size_t>(ranks_));
    std::size_t answered = 0;
    Time now{};
    while (answered < count) {
      const Time begun = now;
      Time arrived = now;  // the last message of the cycle, at rank 0
      std::size_t complete = count;
      std::int64_t bytes = 0;
      for (std::size_t rank = 0; rank < ready.size(); ++rank) {
        const std::size_t before = sent[rank];
        while (sent[rank] < count && ready[rank][sent[rank]] <= begun) ++sent[rank];
        complete = std::min(complete, sent[rank]);
        if (rank == 0) continue;
        const std::int64_t size = bytes_up(before, sent[rank], known);
        bytes += size;
      }
      const std::int64_t others = ranks_ - 1;
      arrived += latency() + others * model_.cost_of_message + time_for(bytes);
      const std::int64_t down = bytes_down(answered, complete, known);
      now = arrived + latency() + others * model_.cost_of_message + time_for(others * down);
      now = std::max(now, begun + cycle_time);
      cost.root.messages_received += others;
      cost.root.messages_sent += others;
      cost.root.bytes_received += bytes;
      cost.root.bytes_sent += others * down;
      if (complete > answered) ++cost.batches;
      answered = complete;
    }
    cost.max_messages = cost.root.messages();
    cost.max_bytes = cost.root.bytes();
    cost.tail = now - last;
    cost.hops = 2;
    return cost;
  }

 private:
  [[nodiscard]] Time latency() const {
    return ranks_ > model_.ranks_per_host ? model_.latency_between_hosts : model_.latency_in_host;
  }
  [[nodiscard]] Time time_for(std::int64_t bytes) const {
    return Time(static_cast<std::int64_t>(static_cast<double>(bytes) / model_.bytes_per_ns));
  }
  [[nodiscard]] const Gradient& at(std::size_t i) const {
    return gradients_[gradients_.size() - 1 - i];
  }
  [[nodiscard]] Descriptor descriptor(std::size_t i) const {
    Descriptor descriptor;
    descriptor.type = OperationType::allreduce;
    descriptor.op = ReduceOp::average;
    descriptor.tensors = {{DType::f32, at(i).shape}};
    return descriptor;
  }

  std::int64_t bytes_up(std::size_t begin, std::size_t end, bool known) {
    auto& size = up_[{begin, end}][known ? 1 : 0];
    if (size != 0) return size;
    ReadinessReport message;
    for (std::size_t i = begin; i < end; ++i) {
      if (known) {
        message.slots.insert(static_cast<negotiation::CacheSlot>(i));
      } else {
        message.ready.push_back({{.name = at(i).name}, {{descriptor(i), RankSet::of(1)}}});
      }
    }
    return size = static_cast<std::int64_t>(negotiation::encode(1, message).size());
  }

  std::int64_t bytes_down(std::size_t begin, std::size_t end, bool known) {
    LogUpdate message;
    negotiation::BatchEntry batch;
    for (std::size_t i = begin; i < end; ++i) {
      if (known) {
        batch.slots.insert(static_cast<negotiation::CacheSlot>(i));
      } else {
        batch.uncached.push_back({{.name = at(i).name}, descriptor(i)});
      }
    }
    if (begin < end) message.entries.push_back({0, std::move(batch)});
    return static_cast<std::int64_t>(negotiation::encode(1, message).size());
  }

  const std::vector<Gradient>& gradients_;
  int ranks_;
  const ClusterModel& model_;
  campaign::Random random_;
  std::map<std::pair<std::size_t, std::size_t>, std::int64_t[2]> up_;
};

}  // namespace

std::vector<StepCost> cost_of_star(const std::vector<Gradient>& gradients, int ranks,
                                   const ClusterModel& model) {
  Star star(gradients, ranks, model);
  const std::vector<std::size_t> layers = layers_of(gradients);
  const Time pause = model.backward / static_cast<std::int64_t>(layers.size());
  return {star.step("first", false, layers, pause), star.step("steady", true, layers, pause),
          star.step("one", true, {1}, Time(0))};
}

}  // namespace kolo::internal::simulation
