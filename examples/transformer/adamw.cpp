// SPDX-License-Identifier: Apache-2.0
#include "adamw.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace gpt {
namespace {

std::string bytes_of(std::span<const float> values) {
  std::string bytes(values.size() * sizeof(float), '\0');
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

void require_size(const std::string& bytes, std::size_t elements) {
  if (bytes.size() == elements * sizeof(float)) return;
  throw kolo::Error("the checkpoint is of a network of " +
                    std::to_string(bytes.size() / sizeof(float)) + " parameters, this one has " +
                    std::to_string(elements));
}

}  // namespace

AdamW::AdamW(const Layout& layout, const AdamWOptions& options)
    : options_(options),
      size_(layout.size),
      pieces_(layout.pieces),
      matrices_(layout.matrices),
      parameters_(layout.size),
      gradients_(layout.size) {}

// KOLO: the model's first unit has the first and the last piece.
AdamW::AdamW(const Layout& layout, const kolo::ShardedModel& model, const AdamWOptions& options)
    : options_(options), size_(layout.size), pieces_(layout.pieces), matrices_(layout.matrices) {
  const std::vector<kolo::NamedTensor> parameters = model.parameters();
  const std::vector<kolo::NamedTensor> gradients = model.gradients();
  const auto values = [](const kolo::NamedTensor& named) {
    return std::span(static_cast<float*>(named.tensor.data()),
                     static_cast<std::size_t>(named.tensor.elements()));
  };
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    kolo::Shard shard = model.shards()[i];
    shard.parameter = i == 0 ? 0 : i == 1 ? pieces_.size() - 1 : i - 1;
    places_.push_back({shard, values(parameters[i]), values(gradients[i])});
  }
  std::ranges::sort(places_, {}, [](const Place& place) { return place.shard.parameter; });
  make_state();
}

std::vector<kolo::NamedTensor> AdamW::gradients() {
  std::vector<kolo::NamedTensor> tensors;
  for (const Piece& piece : pieces_)
    tensors.push_back({piece.name, gradient_memory().subspan(piece.range.begin, piece.range.size)});
  return tensors;
}

std::vector<kolo::NamedTensor> AdamW::parameters() {
  std::vector<kolo::NamedTensor> tensors;
  for (const Piece& piece : pieces_)
    tensors.push_back(
        {piece.name, parameter_memory().subspan(piece.range.begin, piece.range.size)});
  return tensors;
}

std::vector<kolo::Shard> AdamW::whole() const {
  std::vector<kolo::Shard> shards;
  for (std::size_t i = 0; i < pieces_.size(); ++i)
    shards.push_back({i, 0, static_cast<std::int64_t>(pieces_[i].range.size)});
  return shards;
}

// The shard's range in the memory of all parameters.
Range AdamW::range_of(const kolo::Shard& shard) const {
  return {pieces_[shard.parameter].range.begin + static_cast<std::size_t>(shard.begin),
          static_cast<std::size_t>(shard.size())};
}

void AdamW::make_state(std::span<const kolo::Shard> shards) {
  places_.clear();
  for (const kolo::Shard& shard : shards) {
    const Range range = range_of(shard);
    places_.push_back({shard, parameter_memory().subspan(range.begin, range.size),
                       gradient_memory().subspan(range.begin, range.size)});
  }
  make_state();
}

void AdamW::make_state() {
  std::size_t size = 0;
  for (const Place& place : places_) size += place.parameters.size();
  first_moments_.assign(size, 0.0F);
  second_moments_.assign(size, 0.0F);
  decay_.assign(size, 0.0F);
  std::size_t at = 0;
  for (const Place& place : places_) {
    const Range range = range_of(place.shard);
    for (const Range& matrix : matrices_) {
      const std::size_t begin = std::max(matrix.begin, range.begin);
      const std::size_t end = std::min(matrix.begin + matrix.size, range.begin + range.size);
      for (std::size_t i = begin; i < end; ++i) decay_[at + i - range.begin] = 1.0F;
    }
    at += range.size;
  }
}

void AdamW::step(std::span<const kolo::Shard> /*shards*/) { step(); }

void AdamW::step() {
  ++steps_;
  std::size_t at = 0;
  for (const Place& place : places_) {
    update(place, at);
    at += place.parameters.size();
  }
}

// Updates a shard, whose moments begin at index `at`.
void AdamW::update(const Place& place, std::size_t at) {
  const double correction1 = 1.0 - std::pow(options_.beta1, static_cast<double>(steps_));
  const double correction2 = 1.0 - std::pow(options_.beta2, static_cast<double>(steps_));
  const auto beta1 = static_cast<float>(options_.beta1);
  const auto beta2 = static_cast<float>(options_.beta2);
  const auto rate = static_cast<float>(learning_rate_ / correction1);
  const auto inverse2 = static_cast<float>(1.0 / correction2);
  const auto epsilon = static_cast<float>(options_.epsilon);
  const auto decay = static_cast<float>(learning_rate_ * options_.weight_decay);
  const std::span<float> parameters = place.parameters;
  const std::span<const float> gradients = place.gradients;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const float gradient = gradients[i];
    const float m = first_moments_[at + i] =
        beta1 * first_moments_[at + i] + (1.0F - beta1) * gradient;
    const float v = second_moments_[at + i] =
        beta2 * second_moments_[at + i] + (1.0F - beta2) * gradient * gradient;
    parameters[i] -=
        decay * decay_[at + i] * parameters[i] + rate * m / (std::sqrt(v * inverse2) + epsilon);
  }
}

void AdamW::clear_gradients() { std::ranges::fill(gradients_, 0.0F); }

// KOLO: the concatenation of all ranks' shards of a piece is the piece. Pieces are gathered one at
// a time, so that no rank but rank 0 ever holds all moments.
std::string AdamW::gather(std::span<const float> values) const {
  if (values.size() == size_) return bytes_of(values);
  std::string bytes;
  for (const Place& place : places_) {
    const std::vector<float> piece = kolo::allgather(values.first(place.parameters.size())).values;
    if (kolo::rank() == 0) bytes += bytes_of(piece);
    values = values.subspan(place.parameters.size());
  }
  return bytes;
}

std::string AdamW::gather_parameters() const {
  if (!parameters_.empty()) return bytes_of(parameters_);
  std::vector<float> own;
  for (const Place& place : places_)
    own.insert(own.end(), place.parameters.begin(), place.parameters.end());
  return gather(own);
}

kolo::NamedStates AdamW::state() const {
  const std::string parameters = gather_parameters();
  const std::string first = gather(first_moments_);
  const std::string second = gather(second_moments_);
  if (kolo::rank() != 0) return {};
  return {{"steps", std::to_string(steps_)},
          {"parameters", parameters},
          {"first moments", first},
          {"second moments", second}};
}

void AdamW::load_shards(const std::string& bytes, std::vector<float>& values) const {
  std::size_t at = 0;
  for (const Place& place : places_) {
    const Range range = range_of(place.shard);
    std::memcpy(values.data() + at, bytes.data() + range.begin * sizeof(float),
                range.size * sizeof(float));
    at += range.size;
  }
}

void AdamW::load(const kolo::Checkpoint& checkpoint) {
  for (const char* name : {"parameters", "first moments", "second moments"})
    require_size(checkpoint.part(name), size_);
  steps_ = std::stoll(checkpoint.part("steps").text());
  const std::string parameters = checkpoint.part("parameters").text();
  if (!parameters_.empty()) {
    std::memcpy(parameters_.data(), parameters.data(), parameters.size());
  } else {
    std::vector<float> own(first_moments_.size());
    load_shards(parameters, own);
    auto next = own.begin();
    for (const Place& place : places_) {
      const auto count = static_cast<std::ptrdiff_t>(place.parameters.size());
      std::copy(next, next + count, place.parameters.begin());
      next += count;
    }
  }
  load_shards(checkpoint.part("first moments"), first_moments_);
  load_shards(checkpoint.part("second moments"), second_moments_);
}

}  // namespace gpt
