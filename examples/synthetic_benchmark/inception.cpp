// SPDX-License-Identifier: Apache-2.0
// Inception v3 (Szegedy et al., 2015, https://arxiv.org/abs/1512.00567), as commonly benchmarked.
// clang 14 can read LibTorch 1.13 in C++20 only if this comes first.
#include <ATen/core/ivalue.h>

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>
#include <torch/nn/pimpl.h>

#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "models.hpp"

namespace benchmark {
namespace {

namespace nn = torch::nn;

struct Kernel {
  std::int64_t height, width;
};

// A convolution with batch normalization; padded to keep the size unless it is `shrinking`.
class ConvolutionImpl : public nn::Module {
 public:
  ConvolutionImpl(std::int64_t in, std::int64_t out, Kernel kernel, int stride = 1,
                  bool shrinking = false)
      : convolution_(register_module(
            "conv",
            nn::Conv2d(nn::Conv2dOptions(in, out, {kernel.height, kernel.width})
                           .stride(stride)
                           .padding(torch::ExpandingArray<2>({shrinking ? 0 : kernel.height / 2,
                                                              shrinking ? 0 : kernel.width / 2}))
                           .bias(false)))),
        norm_(register_module("bn", nn::BatchNorm2d(nn::BatchNorm2dOptions(out).eps(1e-3)))) {}

  torch::Tensor forward(const torch::Tensor& x) {
    return norm_->forward(convolution_->forward(x)).relu_();
  }

 private:
  nn::Conv2d convolution_;
  nn::BatchNorm2d norm_;
};
TORCH_MODULE(Convolution);

Convolution convolution(std::int64_t in, std::int64_t out, Kernel kernel, int stride = 1,
                        bool shrinking = false) {
  return Convolution(in, out, kernel, stride, shrinking);
}

// Several branches on the same input; concatenates their channels.
class BranchesImpl : public nn::Module {
 public:
  BranchesImpl(std::initializer_list<nn::Sequential> branches) : branches_(branches) {
    for (std::size_t i = 0; i < branches_.size(); ++i) {
      register_module("branch" + std::to_string(i), branches_[i]);
    }
  }

  torch::Tensor forward(const torch::Tensor& x) {
    std::vector<torch::Tensor> outputs;
    for (nn::Sequential& branch : branches_) outputs.push_back(branch->forward(x));
    return torch::cat(outputs, /*dim=*/1);
  }

 private:
  std::vector<nn::Sequential> branches_;
};
TORCH_MODULE(Branches);

Branches side_by_side(std::initializer_list<nn::Sequential> branches) {
  return Branches(std::make_shared<BranchesImpl>(branches));
}

nn::MaxPool2d shrinking_pool() { return nn::MaxPool2d(nn::MaxPool2dOptions(3).stride(2)); }

nn::Sequential pool_then_1x1(std::int64_t in, std::int64_t out) {
  return nn::Sequential(nn::AvgPool2d(nn::AvgPool2dOptions(3).stride(1).padding(1)),
                        convolution(in, out, {1, 1}));
}

Branches block_35(std::int64_t in, std::int64_t pooled) {
  return side_by_side({nn::Sequential(convolution(in, 64, {1, 1})),
                       nn::Sequential(convolution(in, 48, {1, 1}), convolution(48, 64, {5, 5})),
                       nn::Sequential(convolution(in, 64, {1, 1}), convolution(64, 96, {3, 3}),
                                      convolution(96, 96, {3, 3})),
                       pool_then_1x1(in, pooled)});
}

Branches from_35_to_17() {
  return side_by_side({nn::Sequential(convolution(288, 384, {3, 3}, 2, true)),
                       nn::Sequential(convolution(288, 64, {1, 1}), convolution(64, 96, {3, 3}),
                                      convolution(96, 96, {3, 3}, 2, true)),
                       nn::Sequential(shrinking_pool())});
}

Branches block_17(std::int64_t width) {
  return side_by_side(
      {nn::Sequential(convolution(768, 192, {1, 1})),
       nn::Sequential(convolution(768, width, {1, 1}), convolution(width, width, {1, 7}),
                      convolution(width, 192, {7, 1})),
       nn::Sequential(convolution(768, width, {1, 1}), convolution(width, width, {7, 1}),
                      convolution(width, width, {1, 7}), convolution(width, width, {7, 1}),
                      convolution(width, 192, {1, 7})),
       pool_then_1x1(768, 192)});
}

Branches from_17_to_8() {
  return side_by_side(
      {nn::Sequential(convolution(768, 192, {1, 1}), convolution(192, 320, {3, 3}, 2, true)),
       nn::Sequential(convolution(768, 192, {1, 1}), convolution(192, 192, {1, 7}),
                      convolution(192, 192, {7, 1}), convolution(192, 192, {3, 3}, 2, true)),
       nn::Sequential(shrinking_pool())});
}

Branches split() {
  return side_by_side({nn::Sequential(convolution(384, 384, {1, 3})),
                       nn::Sequential(convolution(384, 384, {3, 1}))});
}

Branches block_8(std::int64_t in) {
  return side_by_side(
      {nn::Sequential(convolution(in, 320, {1, 1})),
       nn::Sequential(convolution(in, 384, {1, 1}), split()),
       nn::Sequential(convolution(in, 448, {1, 1}), convolution(448, 384, {3, 3}), split()),
       pool_then_1x1(in, 192)});
}

}  // namespace

nn::Sequential make_inception3() {
  return nn::Sequential(convolution(3, 32, {3, 3}, 2, true), convolution(32, 32, {3, 3}, 1, true),
                        convolution(32, 64, {3, 3}), shrinking_pool(), convolution(64, 80, {1, 1}),
                        convolution(80, 192, {3, 3}, 1, true), shrinking_pool(), block_35(192, 32),
                        block_35(256, 64), block_35(288, 64), from_35_to_17(), block_17(128),
                        block_17(160), block_17(160), block_17(192), from_17_to_8(), block_8(1280),
                        block_8(2048), nn::AdaptiveAvgPool2d(1), nn::Flatten(), nn::Dropout(0.5),
                        nn::Linear(2048, classes));
}

}  // namespace benchmark
