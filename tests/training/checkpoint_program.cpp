// SPDX-License-Identifier: Apache-2.0
// Saves and loads a checkpoint that Python's package `safetensors` reads and writes, too.
// Usage: checkpoint_program save|load DIRECTORY | load-from CHECKPOINT
#include <kolo/kolo.hpp>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using kolo::DType;
using kolo::Shape;

// The elements of all dtypes are small integers, so that each is exact.
struct Model {
  std::vector<float> weight = std::vector<float>(6);
  std::vector<double> bias = std::vector<double>(2);
  std::array<std::uint16_t, 2> halves{};
  std::array<std::uint16_t, 2> brains{};
  std::array<bool, 3> mask{};
  std::int64_t steps = 0;

  kolo::TensorViews views() {
    return {{"0.weight", {weight.data(), Shape{2, 3}}},
            {"0.bias", bias},
            {"half", {halves.data(), Shape{2}, DType::f16}},
            {"brain", {brains.data(), Shape{2, 1}, DType::bf16}},
            {"mask", mask},
            {"steps", steps}};
  }
  friend bool operator==(const Model&, const Model&) = default;
};

Model expected() {
  return {.weight = {1, 2, 3, 4, 5, 6},
          .bias = {-1, 0.5},
          .halves = {0x3C00, 0xC000},  // 1 and -2
          .brains = {0x3F80, 0xC000},  // 1 and -2
          .mask = {true, false, true},
          .steps = 1LL << 40};
}

void save(const std::string& directory) {
  Model model = expected();
  kolo::ConstTensorViews views;
  for (const auto& [name, view] : model.views()) views.emplace(name, view);
  const double own = 0.5 * kolo::rank();
  kolo::Checkpointer checkpoints({.directory = directory});
  checkpoints.save(10, {{"model", kolo::StateView(views)}, {"sampler", "text of a sampler"}},
                   {.metric = 0.125, .per_rank = {{"residual", kolo::StateView({{"x", own}})}}});
}

void require(bool valid, const char* what) {
  if (!valid) throw std::runtime_error(std::string("wrong: ") + what);
}

void load(const std::optional<kolo::Checkpoint>& found) {
  require(found.has_value(), "no checkpoint");
  Model model;
  kolo::load_state(model.views(), found->part("model"));
  require(model == expected(), "the model");
  require(found->part("sampler").text() == "text of a sampler", "the sampler");
  require(found->metric == 0.125, "the metric");
  require(found->per_rank.empty() == (found->ranks != kolo::size()), "parts of a rank's own");
  if (!found->per_rank.empty()) {
    double own = 0;
    kolo::load_state({{"x", own}}, found->per_rank_part("residual"));
    require(own == 0.5 * kolo::rank(), "this rank's own part");
  }
  if (kolo::rank() == 0)
    std::printf("step %lld of %d ranks\n", static_cast<long long>(found->step), found->ranks);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string command = argc == 3 ? argv[1] : "";
  if (command != "save" && command != "load" && command != "load-from") {
    std::fputs("usage: checkpoint_program save|load DIRECTORY | load-from CHECKPOINT\n", stderr);
    return EXIT_FAILURE;
  }
  try {
    const kolo::Session session;
    if (command == "save") save(argv[2]);
    if (command == "load") load(kolo::Checkpointer({.directory = argv[2]}).load_latest());
    if (command == "load-from") load(kolo::Checkpointer::load(argv[2]));
    return EXIT_SUCCESS;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return EXIT_FAILURE;
  }
}
