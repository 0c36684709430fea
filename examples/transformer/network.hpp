// SPDX-License-Identifier: Apache-2.0
// A small GPT: embeddings of tokens and positions, blocks, and a head that shares its weights with
// the embedding of tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "block.hpp"
#include "layers.hpp"
#include "layout.hpp"
#include "memory.hpp"

namespace gpt {

/// `sequences` rows with the same number of tokens, and the token that follows each token.
struct Batch {
  std::vector<std::uint8_t> inputs, targets;
  std::size_t sequences = 0;
};

template <typename Real>
class Network {
 public:
  /// Both references must outlive the network.
  Network(const Config& config, const Layout& layout) : config_(config), layout_(layout) {
    for (const BlockLayout& block : layout.blocks) blocks_.emplace_back(block);
  }

  /// The mean loss over all tokens, in nats. `memory` has the parameters.
  template <NetworkMemory Memory>
  double forward(const Memory& memory, const Batch& batch) {
    inputs_ = batch.inputs;
    run(memory, batch.sequences);
    return cross_entropy(logits_.data(), batch.targets, config_.vocabulary);
  }
  double forward(const Real* parameters, const Batch& batch) {
    return forward(WholeMemory<Real>{layout_, parameters}, batch);
  }

  /// Adds the gradients of the loss that the last `forward` returned.
  template <NetworkMemory Memory>
  void backward(const Memory& memory) {
    const std::size_t rows = inputs_.size();
    const std::size_t width = config_.width;
    const std::size_t norm = layout_.pieces.size() - 1;
    head_backward(memory.root(0), memory.root_gradients(0));
    std::vector<Real> d_stream(rows * width);
    norm_backward(d_stream.data(), memory.root_gradients(norm), memory.root_gradients(norm) + width,
                  d_normed_.data(), stream_, statistics_, memory.root(norm), rows, width);
    memory.complete(norm);
    for (std::size_t i = blocks_.size(); i-- > 0;) {
      {
        const auto layer = memory.layer(i);
        blocks_[i].backward(layer.parameters(), layer.gradients(), d_stream.data());
      }
      memory.complete(i + 1);
    }
    embeddings_backward(memory.root_gradients(0), d_stream);
    memory.complete(0);
  }
  void backward(const Real* parameters, Real* gradients, const OnReady& on_ready) {
    backward(WholeMemory<Real>{layout_, parameters, gradients, on_ready});
  }

  /// The score of each byte as the successor of `tokens`, which are at most `context` bytes.
  template <NetworkMemory Memory>
  std::span<const Real> scores_after(const Memory& memory, std::span<const std::uint8_t> tokens) {
    inputs_.assign(tokens.begin(), tokens.end());
    run(memory, 1);
    return std::span<const Real>(logits_).last(config_.vocabulary);
  }
  std::span<const Real> scores_after(const Real* parameters, std::span<const std::uint8_t> tokens) {
    return scores_after(WholeMemory<Real>{layout_, parameters}, tokens);
  }

 private:
  // Computes the logits.
  template <NetworkMemory Memory>
  void run(const Memory& memory, std::size_t sequences) {
    const std::size_t rows = inputs_.size();
    const std::size_t width = config_.width;
    length_ = rows / sequences;
    embed(memory.root(0));
    stream_ = embedded_.data();
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      const auto layer = memory.layer(i);
      stream_ = blocks_[i].forward(layer.parameters(), stream_,
                                   {sequences, length_, width, config_.heads});
    }
    const Real* norm = memory.root(layout_.pieces.size() - 1);
    normed_.resize(rows * width);
    norm_forward(normed_.data(), statistics_, stream_, norm, norm + width, rows, width);

    std::vector<Real> head(width * config_.vocabulary);
    transpose(memory.root(0) + layout_.token_embedding.begin, width, head.data(),
              config_.vocabulary, width);
    logits_.assign(rows * config_.vocabulary, Real(0));
    add_product({normed_.data(), width}, head.data(), config_.vocabulary, logits_.data(),
                config_.vocabulary, rows, width, config_.vocabulary);
  }

  void embed(const Real* parameters) {
    const std::size_t width = config_.width;
    embedded_.resize(inputs_.size() * width);
    for (std::size_t row = 0; row < inputs_.size(); ++row) {
      const Real* token = parameters + layout_.token_embedding.begin + inputs_[row] * width;
      const Real* place = parameters + layout_.position_embedding.begin + row % length_ * width;
      for (std::size_t i = 0; i < width; ++i) embedded_[row * width + i] = token[i] + place[i];
    }
  }

  // `cross_entropy` has replaced the logits by their gradient.
  void head_backward(const Real* parameters, Real* gradients) {
    const std::size_t rows = inputs_.size();
    const std::size_t width = config_.width;
    const std::size_t vocabulary = config_.vocabulary;
    add_product({logits_.data(), 1, vocabulary}, normed_.data(), width,
                gradients + layout_.token_embedding.begin, width, vocabulary, rows, width);
    d_normed_.assign(rows * width, Real(0));
    add_product({logits_.data(), vocabulary}, parameters + layout_.token_embedding.begin, width,
                d_normed_.data(), width, rows, vocabulary, width);
  }

  void embeddings_backward(Real* gradients, const std::vector<Real>& d_stream) const {
    const std::size_t width = config_.width;
    for (std::size_t row = 0; row < inputs_.size(); ++row) {
      Real* token = gradients + layout_.token_embedding.begin + inputs_[row] * width;
      Real* place = gradients + layout_.position_embedding.begin + row % length_ * width;
      for (std::size_t i = 0; i < width; ++i) {
        token[i] += d_stream[row * width + i];
        place[i] += d_stream[row * width + i];
      }
    }
  }

  const Config& config_;
  const Layout& layout_;
  std::vector<Block<Real>> blocks_;
  std::size_t length_ = 0;  // tokens of each sequence
  std::vector<std::uint8_t> inputs_;
  std::vector<Real> embedded_, normed_, d_normed_, logits_;
  const Real* stream_ = nullptr;  // after the last block
  NormStatistics<Real> statistics_;
};

}  // namespace gpt
