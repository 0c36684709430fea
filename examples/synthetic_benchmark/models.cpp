// SPDX-License-Identifier: Apache-2.0
#include "models.hpp"

#include <torch/nn/functional/activation.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>

#include <array>
#include <functional>
#include <stdexcept>

#include "resnet.hpp"

namespace benchmark {
namespace {

namespace nn = torch::nn;

nn::Conv2d convolution(std::int64_t in, std::int64_t out, std::int64_t size, std::int64_t stride) {
  return nn::Conv2d(nn::Conv2dOptions(in, out, size).stride(stride).padding(size / 2).bias(false));
}

nn::Sequential resnet(const std::array<int, 4>& blocks) {
  const examples::ResNet parts = examples::make_resnet({.blocks = blocks});
  nn::Sequential model;
  for (const auto& module : *parts.stem) model->push_back(module);
  for (const nn::Sequential& stage : parts.stages) {
    for (const auto& module : *stage) model->push_back(module);
  }
  model->push_back(nn::AdaptiveAvgPool2d(1));
  model->push_back(nn::Flatten());
  model->push_back(nn::Linear(parts.channels.back(), classes));
  return model;
}

// Simonyan and Zisserman, 2014 (https://arxiv.org/abs/1409.1556), configuration D.
nn::Sequential vgg16() {
  constexpr int pool = 0;
  nn::Sequential model;
  std::int64_t in = 3;
  for (const int out : {64, 64, pool, 128, 128, pool, 256, 256, 256, pool, 512, 512, 512, pool, 512,
                        512, 512, pool}) {
    if (out == pool) {
      model->push_back(nn::MaxPool2d(nn::MaxPool2dOptions(2).stride(2)));
      continue;
    }
    model->push_back(nn::Conv2d(nn::Conv2dOptions(in, out, 3).padding(1)));
    model->push_back(nn::ReLU(nn::ReLUOptions(true)));
    in = out;
  }
  model->push_back(nn::AdaptiveAvgPool2d(7));
  model->push_back(nn::Flatten());
  std::int64_t features = 512 * 7 * 7;
  for (int layer = 0; layer < 2; ++layer, features = 4096) {
    model->push_back(nn::Linear(features, 4096));
    model->push_back(nn::ReLU(nn::ReLUOptions(true)));
    model->push_back(nn::Dropout(0.5));
  }
  model->push_back(nn::Linear(features, classes));
  return model;
}

nn::Sequential tiny() {
  return nn::Sequential(convolution(3, 8, 3, 2), nn::BatchNorm2d(8), nn::ReLU(),
                        convolution(8, 16, 3, 2), nn::AdaptiveAvgPool2d(1), nn::Flatten(),
                        nn::Linear(16, classes));
}

struct Known {
  std::string name;
  std::int64_t image_size;
  std::function<nn::Sequential()> make;
};

const std::vector<Known>& known() {
  static const std::vector<Known> models = {{"resnet50", 224,
                                             [] {
                                               return resnet({3, 4, 6, 3});
                                             }},
                                            {"resnet101", 224,
                                             [] {
                                               return resnet({3, 4, 23, 3});
                                             }},
                                            {"vgg16", 224, vgg16},
                                            {"inception3", 299, make_inception3},
                                            {"tiny", 32, tiny}};
  return models;
}

const Known& find(const std::string& name) {
  for (const Known& model : known()) {
    if (model.name == name) return model;
  }
  throw std::invalid_argument("there is no model '" + name + "'");
}

}  // namespace

const std::vector<std::string>& model_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Known& model : known()) all.push_back(model.name);
    return all;
  }();
  return names;
}

std::int64_t image_size_of(const std::string& name) { return find(name).image_size; }

nn::Sequential make_model(const std::string& name) { return find(name).make(); }

}  // namespace benchmark
