// SPDX-License-Identifier: Apache-2.0
#include "memory_plan.hpp"

#include <gmock/gmock.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <kolo/training/checkpoint.hpp>
#include <optional>
#include <string>
#include <vector>

#include "options.hpp"

namespace perf {
namespace {

namespace fs = std::filesystem;
using kolo::DType;
using testing::HasSubstr;

class MemoryPlanTest : public testing::Test {
 protected:
  MemoryPlanTest() { fs::create_directories(folder_); }
  ~MemoryPlanTest() override { fs::remove_all(folder_); }

  void save(const std::string& file, const std::vector<std::string>& names) const {
    kolo::StateDict state;
    for (const std::string& name : names)
      state.tensors[name] = {.dtype = DType::f16, .shape = {5, 2}, .bytes = std::string(20, 'x')};
    kolo::save_safetensors(folder_ / file, state.views());
  }
  void write(const std::string& file, const std::string& text) const {
    std::ofstream(folder_ / file) << text;
  }
  [[nodiscard]] std::string at(const std::string& file) const { return (folder_ / file).string(); }
  [[nodiscard]] static std::string complaint(const std::string& model,
                                             const std::optional<std::string>& unit = {}) {
    try {
      (void)find_model_size(model, unit);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "no complaint";
  }

 private:
  fs::path folder_ = fs::path(testing::TempDir()) / ("memory_plan." + std::to_string(getpid()));
};

TEST_F(MemoryPlanTest, FollowsTheFormulas) {
  const ModelSize model{.all = 8000, .largest = 1000, .root = 100};
  const MemoryPlan plan = plan_memory(model, 4, DType::f32, OptimizerKind::adamw);
  EXPECT_EQ(plan.replicated, 16 * 8000);
  EXPECT_EQ(plan.state, (8 + 8 / 4) * 8000);
  EXPECT_EQ(plan.gradients, (4 + 12 / 4) * 8000);
  EXPECT_EQ(plan.full, 16 / 4 * 8000 + (4 * 4 + 2 * 4 / 4) * 1000 + 2 * 4 * 100);
  const MemoryPlan small = plan_memory(model, 2, DType::bf16, OptimizerKind::sgd);
  EXPECT_EQ(small.replicated, 4 * 8000);
  EXPECT_EQ(small.state, 4 * 8000);
  EXPECT_EQ(small.gradients, (2 + 1) * 8000);
  EXPECT_EQ(plan_memory(model, 1, DType::f64, OptimizerKind::momentum).replicated, 24 * 8000);
  // One rank gathers nothing.
  EXPECT_EQ(plan_memory(model, 1, DType::f64, OptimizerKind::momentum).full, 24 * 8000);
}

TEST_F(MemoryPlanTest, TakesNumbersOfParameters) {
  EXPECT_EQ(find_model_size("7B", "200M").all, 7'000'000'000);
  EXPECT_EQ(find_model_size("7B", "200M").largest, 200'000'000);
  EXPECT_EQ(find_model_size("1.5B", "1").all, 1'500'000'000);
  EXPECT_EQ(find_model_size("1000", "20").all, 1000);
  EXPECT_THAT(complaint("124M"), HasSubstr("--unit"));
  EXPECT_THAT(complaint("124M", "125M"), HasSubstr("--unit: '125M'"));
  EXPECT_THAT(complaint("0", "0"), HasSubstr("no parameters"));
}

TEST_F(MemoryPlanTest, TakesLayersForUnits) {
  const ModelSize bert = find_model_size("bert-base", {});
  EXPECT_EQ(bert.all, 109'482'240);
  EXPECT_EQ(bert.largest, 7'087'872);  // a layer
  EXPECT_EQ(bert.all, 12 * bert.largest + bert.root);
  write("model.txt", "embed 10\nh.0.a 4\nh.0.b 5\nh.1.a 8\nh.1 7\nhead.weight 3\n");
  const ModelSize model = find_model_size(at("model.txt"), {});
  EXPECT_EQ(model.largest, 9);
  EXPECT_EQ(model.root, 10 + 7 + 3);
}

TEST_F(MemoryPlanTest, ReadsHeadersOfSafetensorsFiles) {
  save("model.safetensors", {"h.0.a", "h.0.b", "h.1.a", "norm"});
  for (const std::string& model : {at("model.safetensors"), at(".")}) {
    const ModelSize size = find_model_size(model, {});
    EXPECT_EQ(size.all, 40);
    EXPECT_EQ(size.largest, 20);
    EXPECT_EQ(size.root, 10);
  }
  save("other.safetensors", {"h.2.a", "h.2.b", "h.2.c"});
  write("model.safetensors.index.json", R"({"weight_map": {"h.0.a": "model.safetensors",
      "h.2.a": "other.safetensors", "h.2.b": "other.safetensors"}})");
  for (const std::string& model : {at("model.safetensors.index.json"), at(".")}) {
    EXPECT_EQ(find_model_size(model, {}).all, 70);
    EXPECT_EQ(find_model_size(model, {}).largest, 30);
  }
}

TEST_F(MemoryPlanTest, RefusesOtherFiles) {
  write("a.safetensors", "short");
  write("b.safetensors", std::string(40, '\x7f'));
  write("c.safetensors", std::string("\x02\0\0\0\0\0\0\0[]", 10));
  const std::string header = R"({"a":{"shape":[4000000000,4000000000]}})";
  write("d.safetensors", static_cast<char>(header.size()) + std::string(7, '\0') + header);
  write("a.index.json", "{}");
  for (const char* const file : {"a.safetensors", "b.safetensors", "c.safetensors", "d.safetensors",
                                 "a.index.json", "none.safetensors"})
    EXPECT_THAT(complaint(at(file)), HasSubstr(file));
  EXPECT_THAT(complaint(at(".")), HasSubstr("neither"));
  EXPECT_THAT(complaint("no/such/file"), HasSubstr("--memory-plan: 'no/such/file'"));
}

TEST_F(MemoryPlanTest, IsAnAnswer) {
  const std::vector<const char*> line{"kolo-perf", "--memory-plan", "1M",  "--unit",
                                      "100K",      "--ranks",       "2,16"};
  const Options options = parse_options(static_cast<int>(line.size()), line.data());
  EXPECT_THAT(options.answer, HasSubstr("1000000 parameters in f32 with adamw"));
  EXPECT_THAT(options.answer, HasSubstr("\n   16 "));
  const std::vector<const char*> alone{"kolo-perf", "--ranks", "2"};
  EXPECT_THROW((void)parse_options(3, alone.data()), UsageError);
}

}  // namespace
}  // namespace perf
