// SPDX-License-Identifier: Apache-2.0
// Where the network finds its parameters and gradients: whole in the memory of this rank, or, KOLO,
// in shards that a kolo::ShardedModel gathers layer by layer.
#pragma once

#include <cstddef>
#include <functional>
#include <kolo/kolo.hpp>
#include <string>
#include <vector>

#include "layout.hpp"

namespace gpt {

/// Backward calls this function with the name of each piece of the layout whose gradients are
/// complete.
using OnReady = std::function<void(const std::string& piece)>;

/// The memory of the parameters: those of the root's pieces, and of one layer after another.
template <typename T>
concept NetworkMemory = requires(const T& memory) {
  memory.root(std::size_t{});
  memory.layer(std::size_t{});
};

/// Whole parameters, and gradients unless `gradients` is null. The first and the last piece are the
/// root's; the others are layers.
template <typename Real>
struct WholeMemory {
  struct Layer {
    const Real* parameters_;
    Real* gradients_;

    [[nodiscard]] const Real* parameters() const { return parameters_; }
    [[nodiscard]] Real* gradients() const { return gradients_; }
  };

  const Layout& layout;
  const Real* all_parameters;
  Real* all_gradients = nullptr;
  OnReady on_ready = {};

  [[nodiscard]] const Real* root(std::size_t piece) const {
    return all_parameters + layout.pieces[piece].range.begin;
  }
  [[nodiscard]] Real* root_gradients(std::size_t piece) const {
    return all_gradients + layout.pieces[piece].range.begin;
  }
  [[nodiscard]] Layer layer(std::size_t block) const {
    return {root(block + 1), all_gradients == nullptr ? nullptr : root_gradients(block + 1)};
  }
  void complete(std::size_t piece) const {
    if (on_ready) on_ready(layout.pieces[piece].name);
  }
};

/// KOLO: the units of a ShardedModel: the root with the first and the last piece, then the layers,
/// each with one parameter.
std::vector<kolo::ShardedModel::Unit> units_of(const Layout& layout);

/// KOLO: a forward or backward of a ShardedModel.
template <typename Guard>
struct ShardedMemory {
  struct Layer {
    kolo::ShardedModel::Use use;

    [[nodiscard]] const float* parameters() const { return use.parameter<float>(0).data(); }
    [[nodiscard]] float* gradients() const { return use.gradient<float>(0).data(); }
  };

  const Guard& guard;

  [[nodiscard]] const float* root(std::size_t piece) const {
    return guard.template parameter<float>(piece == 0 ? 0 : 1).data();
  }
  [[nodiscard]] float* root_gradients(std::size_t piece) const {
    return guard.template gradient<float>(piece == 0 ? 0 : 1).data();
  }
  [[nodiscard]] Layer layer(std::size_t block) const { return {guard.use(block + 1)}; }
  void complete(std::size_t /*piece*/) const {}
};
template <typename Guard>
ShardedMemory(const Guard&) -> ShardedMemory<Guard>;

/// KOLO: the whole parameters of a ShardedModel.
struct GatheredMemory {
  struct Layer {
    const float* all;

    [[nodiscard]] const float* parameters() const { return all; }
  };

  const kolo::ShardedModel::Whole& whole;

  [[nodiscard]] const float* of(std::size_t unit, std::size_t parameter) const {
    return static_cast<const float*>(whole.parameters(unit)[parameter].data());
  }
  [[nodiscard]] const float* root(std::size_t piece) const { return of(0, piece == 0 ? 0 : 1); }
  [[nodiscard]] Layer layer(std::size_t block) const { return {of(block + 1, 0)}; }
};

}  // namespace gpt
