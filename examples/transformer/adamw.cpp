// SPDX-License-Identifier: Apache-2.0
#include "adamw.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

namespace gpt {
namespace {

std::string bytes_of(const std::vector<float>& values) {
  std::string bytes(values.size() * sizeof(float), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

void load_bytes(const std::string& bytes, std::vector<float>& values) {
  if (bytes.size() != values.size() * sizeof(float))
    throw kolo::Error("the checkpoint is of a network of " +
                      std::to_string(bytes.size() / sizeof(float)) + " parameters, this one has " +
                      std::to_string(values.size()));
  std::memcpy(values.data(), bytes.data(), bytes.size());
}

}  // namespace

AdamW::AdamW(const Layout& layout, const AdamWOptions& options)
    : options_(options),
      pieces_(layout.pieces),
      parameters_(layout.size),
      gradients_(layout.size),
      first_moments_(layout.size),
      second_moments_(layout.size),
      decay_(layout.size) {
  for (const Range& matrix : layout.matrices)
    std::fill_n(decay_.begin() + static_cast<std::ptrdiff_t>(matrix.begin), matrix.size, 1.0F);
}

std::vector<kolo::NamedTensor> AdamW::gradients() {
  std::vector<kolo::NamedTensor> tensors;
  for (const Piece& piece : pieces_)
    tensors.push_back({piece.name, gradient_memory().subspan(piece.range.begin, piece.range.size)});
  return tensors;
}

void AdamW::step() {
  ++steps_;
  const double correction1 = 1.0 - std::pow(options_.beta1, static_cast<double>(steps_));
  const double correction2 = 1.0 - std::pow(options_.beta2, static_cast<double>(steps_));
  const auto beta1 = static_cast<float>(options_.beta1);
  const auto beta2 = static_cast<float>(options_.beta2);
  const auto rate = static_cast<float>(learning_rate_ / correction1);
  const auto inverse2 = static_cast<float>(1.0 / correction2);
  const auto epsilon = static_cast<float>(options_.epsilon);
  const auto decay = static_cast<float>(learning_rate_ * options_.weight_decay);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const float gradient = gradients_[i];
    const float m = first_moments_[i] = beta1 * first_moments_[i] + (1.0F - beta1) * gradient;
    const float v = second_moments_[i] =
        beta2 * second_moments_[i] + (1.0F - beta2) * gradient * gradient;
    parameters_[i] -=
        decay * decay_[i] * parameters_[i] + rate * m / (std::sqrt(v * inverse2) + epsilon);
  }
}

void AdamW::clear_gradients() { std::ranges::fill(gradients_, 0.0F); }

double AdamW::clip(double max_norm) {
  double squares = 0.0;
  for (const float gradient : gradients_) squares += static_cast<double>(gradient) * gradient;
  const double norm = std::sqrt(squares);
  if (norm > max_norm)
    for (float& gradient : gradients_) gradient *= static_cast<float>(max_norm / norm);
  return norm;
}

kolo::Blobs AdamW::state() const {
  return {{"steps", std::to_string(steps_)},
          {"parameters", bytes_of(parameters_)},
          {"first moments", bytes_of(first_moments_)},
          {"second moments", bytes_of(second_moments_)}};
}

void AdamW::load(const kolo::Checkpoint& checkpoint) {
  load_bytes(checkpoint.part("parameters"), parameters_);
  load_bytes(checkpoint.part("first moments"), first_moments_);
  load_bytes(checkpoint.part("second moments"), second_moments_);
  steps_ = std::stoll(checkpoint.part("steps"));
}

}  // namespace gpt
