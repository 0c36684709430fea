// SPDX-License-Identifier: Apache-2.0
#include "network.hpp"  // first, as clang 14 needs it

#include <gtest/gtest.h>
#include <torch/utils.h>

#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include "anchors.hpp"
#include "matching.hpp"

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

TEST(RetinaNet, WithAnUnknownBackboneIsRefused) {
  EXPECT_THROW(RetinaNet(NetworkOptions{.backbone = "resnet7"}), std::invalid_argument);
}

}  // namespace
