#include "models.hpp"

#include <torch/nn/functional/activation.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>
#include <torch/nn/pimpl.h>

#include <array>
#include <functional>
#include <stdexcept>

namespace benchmark {
namespace {

namespace nn = torch::nn;

nn::Conv2d convolution(std::int64_t in, std::int64_t out, std::int64_t size, std::int64_t stride) {
  return nn::Conv2d(nn::Conv2dOptions(in, out, size).stride(stride).padding(size / 2).bias(false));
}

// He et al., 2015 (https://arxiv.org/abs/1512.03385): 1x1, 3x3 and 1x1 around a shortcut. The 3x3
// takes the stride.
class BottleneckImpl : public nn::Module {
 public:
  BottleneckImpl(std::int64_t in, std::int64_t width, std::int64_t stride)
      : conv1_(register_module("conv1", convolution(in, width, 1, 1))),
        conv2_(register_module("conv2", convolution(width, width, 3, stride))),
        conv3_(register_module("conv3", convolution(width, 4 * width, 1, 1))),
        norm1_(register_module("bn1", nn::BatchNorm2d(width))),
        norm2_(register_module("bn2", nn::BatchNorm2d(width))),
        norm3_(register_module("bn3", nn::BatchNorm2d(4 * width))) {
    if (stride == 1 && in == 4 * width) return;
    shortcut_ = register_module("downsample", nn::Sequential(convolution(in, 4 * width, 1, stride),
                                                             nn::BatchNorm2d(4 * width)));
  }

  torch::Tensor forward(const torch::Tensor& x) {
    torch::Tensor y = norm1_->forward(conv1_->forward(x)).relu_();
    y = norm2_->forward(conv2_->forward(y)).relu_();
    y = norm3_->forward(conv3_->forward(y));
    return (y + (shortcut_.is_empty() ? x : shortcut_->forward(x))).relu_();
  }

 private:
  nn::Conv2d conv1_, conv2_, conv3_;
  nn::BatchNorm2d norm1_, norm2_, norm3_;
  nn::Sequential shortcut_{nullptr};
};
TORCH_MODULE(Bottleneck);

nn::Sequential resnet(const std::array<int, 4>& blocks) {
  nn::Sequential model(convolution(3, 64, 7, 2), nn::BatchNorm2d(64), nn::ReLU(),
                       nn::MaxPool2d(nn::MaxPool2dOptions(3).stride(2).padding(1)));
  std::int64_t in = 64;
  std::int64_t width = 64;
  for (const int count : blocks) {
    for (int block = 0; block < count; ++block) {
      const bool shrinks = block == 0 && width > 64;
      model->push_back(Bottleneck(in, width, shrinks ? 2 : 1));
      in = 4 * width;
    }
    width *= 2;
  }
  model->push_back(nn::AdaptiveAvgPool2d(1));
  model->push_back(nn::Flatten());
  model->push_back(nn::Linear(in, classes));
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
