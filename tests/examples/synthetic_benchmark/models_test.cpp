// SPDX-License-Identifier: Apache-2.0
#include "models.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

// The commonly published numbers of parameters; for `tiny`, computed from its layers.
const std::map<std::string, std::int64_t> known_parameters = {
    {"resnet50", 25'557'032},
    {"resnet101", 44'549'160},
    {"vgg16", 138'357'544},
    {"inception3", 23'834'568},
    {"tiny", 8 * 27 + 2 * 8 + 16 * 72 + 17 * benchmark::classes}};

TEST(Models, HaveTheParametersTheyAreKnownForAndGiveALogitForEachClass) {
  const torch::NoGradGuard no_grad;
  for (const std::string& name : benchmark::model_names()) {
    auto model = benchmark::make_model(name);
    std::int64_t count = 0;
    for (const auto& parameter : model->parameters()) count += parameter.numel();
    EXPECT_EQ(count, known_parameters.at(name)) << name;

    model->eval();
    // Smaller images than usual, to save time; all models accept them.
    const std::int64_t side = std::min<std::int64_t>(benchmark::image_size_of(name), 96);
    const torch::Tensor logits = model->forward(torch::zeros({1, 3, side, side}));
    EXPECT_EQ(logits.sizes(), (std::vector<std::int64_t>{1, benchmark::classes})) << name;
  }
}

TEST(Models, OfAnUnknownNameAreRefused) {
  EXPECT_THROW((void)benchmark::make_model("alexnet"), std::invalid_argument);
}

}  // namespace
