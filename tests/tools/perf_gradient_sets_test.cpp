// SPDX-License-Identifier: Apache-2.0
#include "gradient_sets.hpp"

#include <gmock/gmock.h>

#include <set>
#include <sstream>
#include <string>

#include "names.hpp"

namespace perf {
namespace {

using testing::HasSubstr;

std::string complaint(const std::string& text) {
  std::istringstream lines(text);
  try {
    static_cast<void>(read_gradients(lines, "model.txt"));
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no complaint";
}

void expect_unique_names(const Gradients& gradients) {
  std::set<std::string> names;
  for (const Gradient& gradient : gradients)
    EXPECT_TRUE(names.insert(gradient.name).second) << gradient.name;
}

TEST(GradientSets, ResNet50) {
  const Gradients gradients = resnet50();
  EXPECT_EQ(gradients.size(), 161U);
  EXPECT_EQ(count_elements(gradients), 25'557'032);
  EXPECT_EQ(gradients.front().name, "conv1.weight");
  EXPECT_EQ(gradients.back().name, "fc.bias");
  expect_unique_names(gradients);
}

TEST(GradientSets, ResNet101) {
  const Gradients gradients = resnet101();
  EXPECT_EQ(gradients.size(), 314U);
  EXPECT_EQ(count_elements(gradients), 44'549'160);
  expect_unique_names(gradients);
}

TEST(GradientSets, Vgg16) {
  const Gradients gradients = vgg16();
  EXPECT_EQ(gradients.size(), 32U);
  EXPECT_EQ(count_elements(gradients), 138'357'544);
  EXPECT_EQ(gradients[24].name, "features.28.weight");
  expect_unique_names(gradients);
}

TEST(GradientSets, BertBase) {
  const Gradients gradients = bert_base();
  EXPECT_EQ(gradients.size(), 199U);
  EXPECT_EQ(count_elements(gradients), 109'482'240);
  expect_unique_names(gradients);
}

TEST(GradientSets, AreFoundByName) {
  EXPECT_EQ(find_gradients("resnet50", kolo::DType::f32).size(), 161U);
  EXPECT_EQ(find_gradients("resnet101", kolo::DType::f32).size(), 314U);
  EXPECT_EQ(find_gradients("vgg16", kolo::DType::f32).size(), 32U);
  EXPECT_EQ(find_gradients("bert-base", kolo::DType::f32).size(), 199U);
  EXPECT_THROW(static_cast<void>(find_gradients("no/such/file", kolo::DType::f32)), UsageError);
}

TEST(GradientSets, MayBeOfEqualTensors) {
  const Gradients floats = find_gradients("1000x1KB", kolo::DType::f32);
  EXPECT_EQ(floats.size(), 1000U);
  EXPECT_EQ(count_elements(floats), 1000 * 256);
  EXPECT_EQ(count_elements(find_gradients("3x1K", kolo::DType::bf16)), 3 * 512);
  expect_unique_names(floats);
  EXPECT_THROW(static_cast<void>(find_gradients("0x1KB", kolo::DType::f32)), UsageError);
  EXPECT_THROW(static_cast<void>(find_gradients("10x1Q", kolo::DType::f32)), UsageError);
}

TEST(GradientSets, AreReadFromLines) {
  std::istringstream lines(
      "# a model\n"
      "conv.weight 64x3x7x7\n"
      "\n"
      "\tfc.weight  [10, 64]  # the last\r\n"
      "fc.bias 10\n"
      "empty 0\n"
      "scale 4,2");
  const Gradients gradients = read_gradients(lines, "model.txt");
  ASSERT_EQ(gradients.size(), 5U);
  EXPECT_EQ(gradients[0].name, "conv.weight");
  EXPECT_EQ(gradients[0].shape, kolo::Shape(64, 3, 7, 7));
  EXPECT_EQ(gradients[1].name, "fc.weight");
  EXPECT_EQ(gradients[1].shape, kolo::Shape(10, 64));
  EXPECT_EQ(gradients[2].shape, kolo::Shape(10));
  EXPECT_EQ(gradients[3].shape, kolo::Shape(0));
  EXPECT_EQ(gradients[4].shape, kolo::Shape(4, 2));
}

TEST(GradientSets, SayWhichLineIsWrong) {
  EXPECT_THAT(complaint("a 4\nb\n"), HasSubstr("model.txt, line 2: 'b'"));
  EXPECT_THAT(complaint("a 4x-1\n"), HasSubstr("line 1"));
  EXPECT_THAT(complaint("a 4xhigh\n"), HasSubstr("line 1"));
  EXPECT_THAT(complaint("a 4294967296x4294967296\n"), HasSubstr("line 1"));
  EXPECT_THAT(complaint("a 4\na 5\n"), HasSubstr("line 2: there is another 'a'"));
  EXPECT_THAT(complaint("# nothing\n"), HasSubstr("has no elements"));
}

}  // namespace
}  // namespace perf
