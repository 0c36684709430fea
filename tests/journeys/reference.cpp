// SPDX-License-Identifier: Apache-2.0
#include "reference.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "support/random.hpp"
#include "surroundings.hpp"

namespace kolo::internal::journeys {
namespace {

using campaign::hash;

}  // namespace

Replica random_replica(const Program& program, int rank, int session_ranks) {
  Replica replica;
  for (const Model& model : program.models(session_ranks)) {
    ModelState& state = replica.models.emplace_back();
    const bool scaled = program.has(Feature::loss_scale) && model.scale == replica.scales.size();
    replica.scales.push_back(scaled ? LossScale(scale_options(program)).state() : "");
    for (const int size : model.sizes) {
      Parameter& parameter = state.emplace_back();
      parameter.velocities.assign(static_cast<std::size_t>(size), 0.0F);
      for (int i = 0; i < size; ++i)
        parameter.values.push_back(static_cast<float>((i * 5 + rank * 7 + size) % 11));
    }
  }
  return replica;
}

std::string to_bytes(const Replica& replica) {
  std::string bytes;
  for (const ModelState& model : replica.models)
    for (const Parameter& parameter : model)
      for (const auto* values : {&parameter.values, &parameter.velocities})
        bytes.append(reinterpret_cast<const char*>(values->data()), values->size() * sizeof(float));
  for (const std::string& scale : replica.scales) bytes += scale + '\n';
  return bytes;
}

void from_bytes(const std::string& bytes, Replica& replica) {
  std::size_t at = 0;
  for (ModelState& model : replica.models)
    for (Parameter& parameter : model)
      for (auto* values : {&parameter.values, &parameter.velocities}) {
        const std::size_t length = values->size() * sizeof(float);
        if (at + length > bytes.size()) throw std::runtime_error("a checkpoint is too short");
        std::memcpy(values->data(), bytes.data() + at, length);
        at += length;
      }
  for (std::string& scale : replica.scales) {
    const std::size_t end = bytes.find('\n', at);
    if (end == std::string::npos) throw std::runtime_error("a checkpoint lacks a loss scale");
    scale = bytes.substr(at, end - at);
    at = end + 1;
  }
  if (at != bytes.size()) throw std::runtime_error("a checkpoint is too long");
}

std::uint64_t checksum(const ModelState& state) {
  std::uint64_t sum = 0;
  for (const Parameter& parameter : state)
    for (const auto* values : {&parameter.values, &parameter.velocities})
      for (const float value : *values) sum = hash({sum, std::bit_cast<std::uint32_t>(value)});
  return sum;
}

void Gradients::add(std::size_t parameter, std::span<const float> values,
                    std::span<const std::int64_t> examples, std::span<float> gradient) const {
  for (const std::int64_t example : examples) {
    for (int use = model_.shared[parameter] ? 2 : 1; use > 0; --use) {
      const std::uint64_t pattern =
          hash({program_.seed, number_, parameter, static_cast<std::uint64_t>(example),
                static_cast<std::uint64_t>(use)});
      for (std::size_t i = 0; i < gradient.size(); ++i) {
        const auto weight = static_cast<std::int64_t>(std::floor(values[i]));
        const auto sum = static_cast<std::int64_t>((pattern >> (i % 48U)) & 0xFFU) + weight;
        gradient[i] += gradient_bucket * static_cast<float>((sum % 3 + 3) % 3 - 1);
      }
    }
  }
}

bool Gradients::used(std::size_t parameter, const Epoch& epoch, int step, int rank) const {
  if (model_.frozen[parameter]) return false;
  if (!model_.sometimes_unused[parameter]) return true;
  return hash({program_.seed, 55, number_, parameter,
               static_cast<std::uint64_t>(epoch.number() * 100 + step),
               static_cast<std::uint64_t>(rank)}) %
             2 ==
         0;
}

std::optional<Overflow> Gradients::overflow(const Epoch& epoch, int step, int rank) const {
  if (!program_.has(Feature::loss_scale)) return std::nullopt;
  const std::uint64_t random =
      hash({program_.seed, 111, number_, static_cast<std::uint64_t>(epoch.number() * 100 + step),
            static_cast<std::uint64_t>(rank)});
  // With compression the scale only falls. Each overflow halves it, and fp16 cannot hold gradients
  // at scales below 2^-28.
  const unsigned once_in = program_.has(Feature::compression) ? 32 : 8;
  if (random % once_in != 0) return std::nullopt;
  const auto passes = static_cast<unsigned>(epoch.passes(step, rank, model_.accumulation));
  for (std::size_t i = 0; i < model_.sizes.size(); ++i)
    if (used(i, epoch, step, rank))
      return Overflow{.parameter = i,
                      .element = random / 8 % static_cast<unsigned>(model_.sizes[i]),
                      .pass = static_cast<int>(random / 64 % passes),
                      .value = random / 16 % 2 == 0 ? std::numeric_limits<float>::infinity()
                                                    : std::numeric_limits<float>::quiet_NaN()};
  return std::nullopt;
}

void apply(Parameter& parameter, std::span<const float> gradient, double learning_rate,
           double momentum) {
  const auto rate = static_cast<float>(learning_rate);
  const auto keep = static_cast<float>(momentum);
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    const float velocity = keep * parameter.velocities[i] + gradient[i];
    if (momentum != 0.0) parameter.velocities[i] = velocity;
    parameter.values[i] -= rate * velocity;
  }
}

double norm_of(std::span<const std::span<float>> gradients) {
  double squares = 0.0;
  for (const auto gradient : gradients)
    for (const float value : gradient) squares += static_cast<double>(value) * value;
  return std::sqrt(squares);
}

void require_norm(double norm, double wanted, double tolerance) {
  if (std::abs(norm - wanted) <= tolerance * wanted) return;
  if (!std::isfinite(norm) && !std::isfinite(wanted)) return;
  throw Unexpected("the norm of the gradients is " + std::to_string(norm) + ", not " +
                   std::to_string(wanted));
}

void clip(std::span<const std::span<float>> gradients, double max_norm) {
  clip(gradients, max_norm, norm_of(gradients));
}

void clip(std::span<const std::span<float>> gradients, double max_norm, double norm) {
  if (norm <= max_norm || !std::isfinite(norm)) return;
  // A power of two keeps all digits.
  const auto factor = static_cast<float>(std::exp2(std::floor(std::log2(max_norm / norm))));
  for (const auto gradient : gradients)
    for (float& value : gradient) value *= factor;
}

double max_norm_of(const Program& program) {
  return 2.0 * gradient_bucket * static_cast<double>(1 + program.seed % 8);
}

int step_of(const Event& event, const Epoch& epoch) {
  return std::clamp(event.step, 0, std::max(0, epoch.fewest_steps() - 1));
}

bool fails(const Program& program, const Epoch& epoch, int step) {
  return std::ranges::any_of(program.events, [&](const Event& event) {
    return (event.incident == Incident::forward_exception ||
            event.incident == Incident::hook_exception) &&
           event.epoch == epoch.number() && step_of(event, epoch) == step;
  });
}

Reference::Reference(const Program& program, int session_ranks, std::vector<Replica> replicas)
    : program_(program),
      session_ranks_(session_ranks),
      models_(program.models(session_ranks)),
      replicas_(std::move(replicas)) {}

void Reference::start() {
  for (std::size_t number = 0; number < models_.size(); ++number)
    for (const auto& members : models_[number].sets)
      copy_to_members(number, members, members.front());
}

void Reference::copy_to_members(std::size_t number, const std::vector<int>& members, int root) {
  const Replica& from = replicas_[static_cast<std::size_t>(root)];
  for (const int rank : members) {
    if (rank == root) continue;
    Replica& to = replicas_[static_cast<std::size_t>(rank)];
    to.models[number] = from.models[number];
    to.scales[number] = from.scales[number];
  }
}

void Reference::run(const Epoch& epoch) {
  for (int step = 0; step < epoch.most_steps(); ++step) {
    if (fails(program_, epoch, step)) continue;
    for (std::size_t number = 0; number < models_.size(); ++number) run_step(epoch, step, number);
    if (program_.has(Feature::loss_scale) && !epoch.skipped(step)) update_scales(epoch, step);
  }
  if (!program_.has(Feature::uneven)) return;
  for (std::size_t number = 0; number < models_.size(); ++number)
    for (const auto& members : models_[number].sets)
      copy_to_members(number, members, epoch.last_rank(members));
}

Reference::Tensors Reference::local(const Epoch& epoch, int step, std::size_t number,
                                    int rank) const {
  const Model& model = models_[number];
  const Gradients gradients(program_, model, number);
  const ModelState& state = replicas_[static_cast<std::size_t>(rank)].models[number];
  Tensors tensors;
  for (std::size_t i = 0; i < model.sizes.size(); ++i) {
    tensors.emplace_back(state[i].values.size(), 0.0F);
    if (!gradients.used(i, epoch, step, rank)) continue;
    for (int pass = 0; pass < epoch.passes(step, rank, model.accumulation); ++pass)
      gradients.add(i, state[i].values, epoch.examples(step, pass, rank), tensors.back());
  }
  return tensors;
}

void Reference::run_step(const Epoch& epoch, int step, std::size_t number) {
  const Model& model = models_[number];
  std::vector<bool> done(static_cast<std::size_t>(session_ranks_), false);
  for (const auto& members : model.sets) {
    Tensors sum;
    for (const int rank : members) done[static_cast<std::size_t>(rank)] = true;
    std::vector<int> present;
    for (const int rank : members)
      if (step < epoch.steps(rank)) present.push_back(rank);
    for (const int rank : present) {
      const Tensors one = local(epoch, step, number, rank);
      if (sum.empty()) sum.resize(one.size());
      for (std::size_t i = 0; i < one.size(); ++i) {
        sum[i].resize(one[i].size(), 0.0F);
        for (std::size_t j = 0; j < one[i].size(); ++j) sum[i][j] += one[i][j];
      }
    }
    if (present.empty() || overflows(epoch, step, number, present)) continue;
    double divisor = model.op == ReduceOp::average ? static_cast<double>(members.size()) : 1.0;
    if (model.accumulation == Accumulation::mean)
      divisor *= epoch.passes(step, present.front(), model.accumulation);
    for (auto& tensor : sum)
      for (float& value : tensor) value = static_cast<float>(static_cast<double>(value) / divisor);
    for (const int rank : present) {
      Tensors own = sum;
      finish(own, reached(epoch, step, number, present), epoch, step, number, rank);
    }
  }
  for (int rank = 0; rank < session_ranks_; ++rank) {
    if (done[static_cast<std::size_t>(rank)] || step >= epoch.steps(rank)) continue;
    if (overflows(epoch, step, number, {rank})) continue;
    Tensors own = local(epoch, step, number, rank);
    if (model.accumulation == Accumulation::mean)
      for (auto& tensor : own)
        for (float& value : tensor)
          value /= static_cast<float>(epoch.passes(step, rank, model.accumulation));
    finish(own, reached(epoch, step, number, {rank}), epoch, step, number, rank);
  }
}

bool Reference::overflows(const Epoch& epoch, int step, std::size_t number,
                          const std::vector<int>& ranks) const {
  const Gradients gradients(program_, models_[number], number);
  return std::ranges::any_of(
      ranks, [&](int rank) { return gradients.overflow(epoch, step, rank).has_value(); });
}

std::vector<int> Reference::partners(const Epoch& epoch, int step, std::size_t number,
                                     int rank) const {
  std::vector<int> set{rank};
  for (const auto& members : models_[number].sets)
    if (std::ranges::find(members, rank) != members.end()) set = members;
  std::erase_if(set, [&](int member) { return step >= epoch.steps(member); });
  return set;
}

// A scale shrinks if the gradients of any of its models have overflowed.
void Reference::update_scales(const Epoch& epoch, int step) {
  for (int rank = 0; rank < session_ranks_; ++rank) {
    if (step >= epoch.steps(rank)) continue;
    std::vector<bool> shrinks(models_.size(), false);
    for (std::size_t number = 0; number < models_.size(); ++number)
      if (overflows(epoch, step, number, partners(epoch, step, number, rank)))
        shrinks[models_[number].scale] = true;
    for (std::size_t number = 0; number < models_.size(); ++number) {
      if (models_[number].scale != number) continue;
      std::string& text = replicas_[static_cast<std::size_t>(rank)].scales[number];
      LossScale scale(scale_options(program_));
      scale.load_state(text);
      scale.update(shrinks[number]);
      text = scale.state();
    }
  }
}

// By parameter: whether LibTorch has a gradient for it after backward on these ranks.
std::vector<bool> Reference::reached(const Epoch& epoch, int step, std::size_t number,
                                     const std::vector<int>& ranks) const {
  const Model& model = models_[number];
  std::vector<bool> reached(model.sizes.size(), !program_.has(Feature::set_to_none));
  const Gradients gradients(program_, model, number);
  for (const int rank : ranks) {
    bool any = false;
    for (std::size_t i = 0; i < reached.size(); ++i) {
      if (!gradients.used(i, epoch, step, rank)) continue;
      reached[i] = true;
      any = true;
    }
    if (!any) reached.back() = true;  // backward needs a parameter
  }
  return reached;
}

void Reference::finish(Tensors& gradients, const std::vector<bool>& reached, const Epoch& epoch,
                       int step, std::size_t number, int rank) {
  if (epoch.skipped(step)) return;
  const Model& model = models_[number];
  std::vector<std::span<float>> spans(gradients.begin(), gradients.end());
  if (program_.has(Feature::clipping)) clip(spans, max_norm_of(program_));
  ModelState& state = replicas_[static_cast<std::size_t>(rank)].models[number];
  for (std::size_t i = 0; i < spans.size(); ++i)
    if (!model.frozen[i] && reached[i])
      apply(state[i], spans[i], epoch.learning_rate(step), model.momentum);
}

}  // namespace kolo::internal::journeys
