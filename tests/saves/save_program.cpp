// SPDX-License-Identifier: Apache-2.0
// Saves checkpoint after checkpoint, and is killed meanwhile.
//
//   save_program FOLDER FIRST SAVES
//
// Begins by loading the latest checkpoint, of FIRST or a later step, and verifies each of its
// elements. With SAVES = 0 it ends then. Prints "loaded STEP" and "counts STEP" as soon as the
// checkpoint of this step counts, and runs the collectives of a training in between.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <kolo/kolo.hpp>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

/// Tensors of several sizes, whose elements all state the step. Rank 0 writes the small one.
class Model {
 public:
  Model() {
    for (const std::size_t elements : {30'000U, 10U, 200'000U, 9'000U, 70'000U})
      tensors_.emplace_back(elements);
  }

  [[nodiscard]] kolo::ConstTensorViews views() const {
    kolo::ConstTensorViews views;
    for (std::size_t i = 0; i < tensors_.size(); ++i) views.emplace(std::to_string(i), tensors_[i]);
    return views;
  }
  void set(std::int64_t step) {
    for (auto& tensor : tensors_) std::ranges::fill(tensor, step);
  }
  void load(const kolo::Checkpoint& found) {
    kolo::TensorViews views;
    for (std::size_t i = 0; i < tensors_.size(); ++i) views.emplace(std::to_string(i), tensors_[i]);
    kolo::load_state(views, found.part("model"));
    for (const auto& tensor : tensors_)
      for (const std::int64_t value : tensor)
        if (value != found.step)
          throw std::runtime_error(
              fmt::format("an element is {} in the checkpoint of step {}", value, found.step));
  }

 private:
  std::vector<std::vector<std::int64_t>> tensors_{};
};

void say(const char* what, std::int64_t step) {
  if (kolo::rank() == 0) std::cout << fmt::format("{} {}\n", what, step) << std::flush;
}

std::string own_of(int rank, std::int64_t step) { return fmt::format("rank {} at {}", rank, step); }

void run(const std::string& folder, std::int64_t first, std::int64_t saves) {
  const kolo::Session session;
  kolo::Checkpointer checkpoints({.directory = folder, .keep_last = 1});
  Model model;
  std::int64_t step = first;
  if (const auto found = checkpoints.load_latest()) {
    model.load(*found);
    if (found->step < first)
      throw std::runtime_error(
          fmt::format("step {} is loaded, and {} counted", found->step, first));
    if (!found->per_rank.empty() &&
        found->per_rank_part("own").text() != own_of(kolo::rank(), found->step))
      throw std::runtime_error("the part of another rank or step is loaded");
    step = found->step;
  } else if (first > 0) {
    throw std::runtime_error(fmt::format("nothing is loaded, and step {} counted", first));
  }
  say("loaded", step);
  std::vector<float> gradient(1000);
  for (std::int64_t i = 1; i <= saves; ++i) {
    step += i % 5 == 0 ? 0 : 1;  // the same step again
    model.set(step);
    const kolo::NamedViews parts{{"model", kolo::StateView(model.views())}};
    const kolo::CheckpointExtras extras{.per_rank = {{"own", own_of(kolo::rank(), step)}}};
    if (i % 3 == 0) {
      checkpoints.save(step, parts, extras);
    } else {
      checkpoints.save_async(step, parts, extras);
      model.set(-1);  // training goes on
      kolo::allreduce(gradient);
      if (i % 3 == 1) checkpoints.wait();
    }
    if (i % 3 != 2) say("counts", step);
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc != 4) throw std::runtime_error("usage: save_program FOLDER FIRST SAVES");
    run(argv[1], std::atoll(argv[2]), std::atoll(argv[3]));
    return EXIT_SUCCESS;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return EXIT_FAILURE;
  }
}
