// SPDX-License-Identifier: Apache-2.0
#include "network.hpp"  // first, as clang 14 needs it

#include <gtest/gtest.h>
#include <torch/utils.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <kolo/torch.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "anchors.hpp"
#include "matching.hpp"
#include "temporary_directory.hpp"

namespace {

using namespace retinanet;

// One anchor with the probabilities p of two categories.
double focal_loss_of(double p0, double p1, std::int64_t label) {
  const auto logit = [](double p) { return static_cast<float>(std::log(p / (1 - p))); };
  const torch::Tensor logits = torch::tensor({logit(p0), logit(p1)}).reshape({1, 1, 2});
  return focal_loss(logits, torch::tensor({label}).reshape({1, 1})).item<double>();
}

double positive(double p) { return -0.25 * (1 - p) * (1 - p) * std::log(p); }
double negative(double p) { return -0.75 * p * p * std::log(1 - p); }

TEST(FocalLoss, IsTheFormula) {
  for (const double p : {0.01, 0.3, 0.5, 0.9, 0.999}) {
    for (const double q : {0.02, 0.6}) {
      SCOPED_TRACE(std::to_string(p) + " " + std::to_string(q));
      EXPECT_NEAR(focal_loss_of(p, q, background), negative(p) + negative(q), 1e-5);
      EXPECT_NEAR(focal_loss_of(p, q, 0), positive(p) + negative(q), 1e-5);
      EXPECT_NEAR(focal_loss_of(p, q, 1), negative(p) + positive(q), 1e-5);
      EXPECT_EQ(focal_loss_of(p, q, ignored), 0.0);
    }
  }
}

TEST(FocalLoss, AddsUpAnchorsAndPictures) {
  const torch::Tensor logits = torch::zeros({2, 3, 4});  // all probabilities are a half
  const torch::Tensor labels = torch::tensor({{0, 3, 1}, {-1, -2, -1}});
  const double wanted = 3 * positive(0.5) + (3 * 3 + 2 * 4) * negative(0.5);
  EXPECT_NEAR(focal_loss(logits, labels).item<double>(), wanted, 1e-6);
}

TEST(FocalLoss, StaysFiniteForSureNetworks) {
  for (const float logit : {-200.0F, 200.0F}) {
    torch::Tensor logits = torch::full({1, 2, 1}, logit).requires_grad_();
    const torch::Tensor loss = focal_loss(logits, torch::tensor({{0, -1}}));
    // One of the two is wrong by 200, with full weight.
    EXPECT_NEAR(loss.item<double>(), 200 * (logit < 0 ? 0.25 : 0.75), 1e-3);
    loss.backward();
    EXPECT_TRUE(logits.grad().isfinite().all().item<bool>());
  }
}

TEST(BoxLoss, IsOfAnchorsWithACategory) {
  // Differences of 0.05, -0.1 (both below 1/9), 2 and 0 where there is an object.
  const torch::Tensor wanted = torch::zeros({1, 3, 4});
  const torch::Tensor offsets =
      torch::tensor({5.0, 5.0, 5.0, 5.0, 0.05, -0.1, 2.0, 0.0, 7.0, 7.0, 7.0, 7.0}, torch::kFloat)
          .reshape({1, 3, 4});
  const torch::Tensor labels = torch::tensor({{-1, 4, -2}});
  EXPECT_NEAR(box_loss(offsets, wanted, labels).item<double>(),
              4.5 * (0.0025 + 0.01) + 2 - 1.0 / 18, 1e-6);
  EXPECT_EQ(box_loss(offsets, wanted, torch::full({1, 3}, -1)).item<double>(), 0.0);
}

TEST(RetinaNet, SpeaksOfEveryAnchor) {
  const torch::NoGradGuard no_grad;
  RetinaNet network(
      NetworkOptions{.backbone = "tiny", .channels = 16, .head_layers = 1, .categories = 5});
  for (const std::int64_t side : {32, 100}) {
    const Outputs outputs = network->forward(torch::zeros({2, 3, side, side}));
    const auto anchors =
        static_cast<std::int64_t>(make_anchors(static_cast<std::size_t>(side), 4.0).size());
    EXPECT_EQ(outputs.logits.sizes(), (std::vector<std::int64_t>{2, anchors, 5}));
    EXPECT_EQ(outputs.offsets.sizes(), (std::vector<std::int64_t>{2, anchors, 4}));
  }
}

// If the last convolution outputs a constant per channel, these constants are the whole result.
TEST(RetinaNet, HasTheCategoriesOfAnAnchorSideBySide) {
  const torch::NoGradGuard no_grad;
  RetinaNet network(
      NetworkOptions{.backbone = "tiny", .channels = 8, .head_layers = 0, .categories = 2});
  for (auto& parameter : network->named_parameters()) {
    if (parameter.key() == "classes.0.weight") parameter.value().zero_();
    if (parameter.key() == "classes.0.bias") parameter.value().copy_(torch::arange(18));
  }
  const torch::Tensor logits = network->forward(torch::zeros({1, 3, 64, 64})).logits;
  for (std::int64_t anchor = 0; anchor < logits.size(1); ++anchor) {
    for (std::int64_t category = 0; category < 2; ++category) {
      ASSERT_EQ(logits[0][anchor][category].item<double>(),
                static_cast<double>(anchor % 9 * 2 + category));
    }
  }
}

TEST(RetinaNet, BeginsWithAProbabilityOfAHundredth) {
  const torch::NoGradGuard no_grad;
  torch::manual_seed(1);
  RetinaNet network(
      NetworkOptions{.backbone = "tiny", .channels = 16, .head_layers = 1, .categories = 3});
  const torch::Tensor logits = network->forward(torch::randn({1, 3, 64, 64})).logits;
  EXPECT_NEAR(torch::sigmoid(logits).mean().item<double>(), 0.01, 0.005);
}

// An image's outputs do not depend on the rest of its batch, so n ranks compute the same as one.
TEST(RetinaNet, TreatsEachPictureOfABatchAlone) {
  const torch::NoGradGuard no_grad;
  torch::manual_seed(1);
  RetinaNet network(
      NetworkOptions{.backbone = "tiny", .channels = 16, .head_layers = 1, .categories = 3});
  const torch::Tensor pictures = torch::randn({2, 3, 64, 64});
  const Outputs both = network->forward(pictures);
  for (std::int64_t i = 0; i < 2; ++i) {
    const Outputs one = network->forward(pictures.narrow(0, i, 1));
    EXPECT_TRUE(torch::allclose(one.logits[0], both.logits[i], 1e-4, 1e-5));
    EXPECT_TRUE(torch::allclose(one.offsets[0], both.offsets[i], 1e-4, 1e-5));
  }
}

// A backbone as another program trains it: its batch normalizations have statistics.
class Backbone : public testing::Test {
 protected:
  Backbone() {
    torch::manual_seed(1);
    append("conv1.", *other_.stem->ptr(0));
    append("bn1.", *other_.stem->ptr(1));
    for (std::size_t i = 0; i < 4; ++i) {
      append("layer" + std::to_string(i + 1) + ".", *other_.stages[i]);
    }
    tensors_.emplace_back("fc.weight", torch::zeros({10, 64}));
  }

  void append(const std::string& prefix, torch::nn::Module& module) {
    module.eval();
    const auto add = [&](const std::string& name, torch::Tensor tensor) {
      if (tensor.is_floating_point()) tensor.normal_(0.2, 0.3);
      if (name.find("running_var") != std::string::npos) tensor.abs_().add_(0.5);
      tensors_.emplace_back(prefix + name, tensor);
    };
    for (const auto& item : module.named_parameters()) add(item.key(), item.value());
    for (const auto& item : module.named_buffers()) add(item.key(), item.value());
  }

  // Features of images with pixels from 0 to 1, as torchvision passes them to its networks.
  std::vector<torch::Tensor> features_of_other(const torch::Tensor& colors) {
    const auto of_colors = [](double r, double g, double b) {
      return torch::tensor({r, g, b}, torch::kFloat).reshape({1, 3, 1, 1});
    };
    torch::Tensor x = (colors - of_colors(0.485, 0.456, 0.406)) / of_colors(0.229, 0.224, 0.225);
    x = other_.stem->forward(x);
    std::vector<torch::Tensor> levels;
    for (auto& stage : other_.stages) levels.push_back(x = stage->forward(x));
    return levels;
  }

  std::filesystem::path save() const {
    const std::filesystem::path file = directory_.path() / "weights.safetensors";
    kolo::save_safetensors(file, tensors_);
    return file;
  }

  const torch::NoGradGuard no_grad_;
  const TemporaryDirectory directory_;
  examples::ResNet other_ = examples::make_resnet(
      {.blocks = {1, 1, 1, 1}, .bottleneck = false, .width = 8, .norm = examples::batch_norm});
  kolo::NamedParameters tensors_;
  RetinaNet network_{NetworkOptions{
      .backbone = "tiny", .channels = 16, .head_layers = 1, .categories = 3, .pretrained = true}};
};

TEST_F(Backbone, HasTheFeaturesOfTheNetworkWithItsWeights) {
  network_->load_backbone(save());
  const torch::Tensor colors = torch::rand({2, 3, 64, 64});
  const auto features = network_->features((colors * 255 - 127.5) / 64);
  const auto wanted = features_of_other(colors);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_TRUE(
        torch::allclose(features[i], wanted[i], 1e-3, 1e-4 * wanted[i].abs().max().item<double>()))
        << "stage " << i + 1;
  }
}

TEST_F(Backbone, IsFrozenUpToItsFirstStage) {
  network_->load_backbone(save());
  for (const auto& item : network_->named_parameters()) {
    const bool frozen = item.key().rfind("stem.", 0) == 0 || item.key().rfind("stage1.", 0) == 0;
    EXPECT_EQ(item.value().requires_grad(), !frozen) << item.key();
    EXPECT_EQ(item.key().rfind("stage", 0) == 0 && item.key().find(".bn") != std::string::npos,
              false)
        << item.key();
  }
  const torch::Tensor before = network_->named_buffers()["stage2.0.bn1.running_mean"].clone();
  network_->train();
  (void)network_->forward(torch::randn({2, 3, 64, 64}));
  EXPECT_TRUE(network_->named_buffers()["stage2.0.bn1.running_mean"].equal(before));
}

TEST_F(Backbone, OfAnotherNetworkIsRefused) {
  std::erase_if(tensors_, [](const auto& one) { return one.first == "layer4.0.bn2.running_var"; });
  try {
    network_->load_backbone(save());
    FAIL() << "it was read";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("lacks 1 of"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("'layer4.0.bn2.running_var'"), std::string::npos);
  }
}

// torchvision.sh has written the weights of torchvision's ResNet-50, an image and its features.
TEST(Torchvision, HasTheSameFeatures) {
  const char* folder = std::getenv("KOLO_TORCHVISION_FEATURES");
  if (folder == nullptr) GTEST_SKIP() << "torchvision.sh runs this test";
  const torch::NoGradGuard no_grad;
  RetinaNet network(NetworkOptions{.channels = 16, .head_layers = 0, .pretrained = true});
  network->load_backbone(std::filesystem::path(folder) / "resnet50.safetensors");
  const kolo::StateDict made =
      kolo::load_safetensors(std::filesystem::path(folder) / "features.safetensors");
  const auto features = network->features(kolo::to_tensor(made.tensors.at("image")));
  for (std::size_t i = 0; i < features.size(); ++i) {
    const torch::Tensor wanted = kolo::to_tensor(made.tensors.at("layer" + std::to_string(i + 1)));
    EXPECT_GT(wanted.abs().max().item<double>(), 0.0);
    EXPECT_TRUE(
        torch::allclose(features[i], wanted, 1e-3, 1e-4 * wanted.abs().max().item<double>()))
        << "stage " << i + 1;
  }
}

TEST(RetinaNet, WithAnUnknownBackboneIsRefused) {
  EXPECT_THROW(RetinaNet(NetworkOptions{.backbone = "resnet7"}), std::invalid_argument);
}

}  // namespace
