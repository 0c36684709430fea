// SPDX-License-Identifier: Apache-2.0
// The parameters of common models, derived from their architectures.
#include <array>
#include <initializer_list>
#include <string>
#include <utility>

#include "gradient_sets.hpp"

namespace perf {
namespace {

/// A weight and a bias of equal length: batch and layer normalization.
void add_pair(Gradients& to, const std::string& layer, const kolo::Shape& weight) {
  to.push_back({layer + ".weight", weight});
  to.push_back({layer + ".bias", kolo::Shape(weight[0])});
}

/// A convolution without bias, and its batch normalization.
void add_convolution(Gradients& to, const std::string& convolution, const std::string& norm,
                     const kolo::Shape& weight) {
  to.push_back({convolution + ".weight", weight});
  add_pair(to, norm, kolo::Shape(weight[0]));
}

/// The bottleneck block of He et al., 2015: convolutions of 1x1, 3x3 and 1x1 around a shortcut.
void add_bottleneck(Gradients& to, const std::string& block, int input, int width, bool first) {
  const int output = 4 * width;
  add_convolution(to, block + "conv1", block + "bn1", {width, input, 1, 1});
  add_convolution(to, block + "conv2", block + "bn2", {width, width, 3, 3});
  add_convolution(to, block + "conv3", block + "bn3", {output, width, 1, 1});
  if (first)
    add_convolution(to, block + "downsample.0", block + "downsample.1", {output, input, 1, 1});
}

Gradients resnet(const std::array<int, 4>& blocks) {
  Gradients gradients;
  add_convolution(gradients, "conv1", "bn1", {64, 3, 7, 7});
  int input = 64;
  int width = 64;
  for (std::size_t stage = 0; stage < blocks.size(); ++stage, width *= 2) {
    for (int block = 0; block < blocks[stage]; ++block) {
      const std::string name = "layer" + std::to_string(stage + 1) + "." + std::to_string(block);
      add_bottleneck(gradients, name + ".", input, width, block == 0);
      input = 4 * width;
    }
  }
  add_pair(gradients, "fc", {1000, input});
  return gradients;
}

void add_bert_layer(Gradients& to, const std::string& layer) {
  constexpr int hidden = 768;
  constexpr int intermediate = 3072;
  for (const char* part : {"self.query", "self.key", "self.value", "output.dense"})
    add_pair(to, layer + "attention." + part, {hidden, hidden});
  add_pair(to, layer + "attention.output.LayerNorm", {hidden});
  add_pair(to, layer + "intermediate.dense", {intermediate, hidden});
  add_pair(to, layer + "output.dense", {hidden, intermediate});
  add_pair(to, layer + "output.LayerNorm", {hidden});
}

}  // namespace

Gradients resnet50() { return resnet({3, 4, 6, 3}); }

Gradients resnet101() { return resnet({3, 4, 23, 3}); }

Gradients vgg16() {
  Gradients gradients;
  int input = 3;
  int layer = 0;  // also counts the activations and pooling layers between convolutions
  const std::initializer_list<std::pair<int, int>> stages = {
      {2, 64}, {2, 128}, {3, 256}, {3, 512}, {3, 512}};
  for (const auto& [convolutions, width] : stages) {
    for (int i = 0; i < convolutions; ++i, layer += 2) {
      add_pair(gradients, "features." + std::to_string(layer), {width, input, 3, 3});
      input = width;
    }
    ++layer;
  }
  add_pair(gradients, "classifier.0", {4096, 512 * 7 * 7});
  add_pair(gradients, "classifier.3", {4096, 4096});
  add_pair(gradients, "classifier.6", {1000, 4096});
  return gradients;
}

Gradients bert_base() {
  Gradients gradients;
  gradients.push_back({"embeddings.word_embeddings.weight", {30522, 768}});
  gradients.push_back({"embeddings.position_embeddings.weight", {512, 768}});
  gradients.push_back({"embeddings.token_type_embeddings.weight", {2, 768}});
  add_pair(gradients, "embeddings.LayerNorm", {768});
  for (int layer = 0; layer < 12; ++layer)
    add_bert_layer(gradients, "encoder.layer." + std::to_string(layer) + ".");
  add_pair(gradients, "pooler.dense", {768, 768});
  return gradients;
}

}  // namespace perf
