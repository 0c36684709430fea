// SPDX-License-Identifier: Apache-2.0
// A training that stops in good order and resumes from its checkpoint.
//
//   stop_trainer_program FOLDER STEPS SAVE_MS [elastic]
//
// SAVE_MS: how long a save takes. FOLDER/rank.N has the rank's process id once it can be stopped.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <functional>
#include <iostream>
#include <kolo/kolo.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

/// After N steps every weight is the sum of 1 to N, on any number of ranks.
struct Model {
  std::vector<double> weights = std::vector<double>(1000);
  std::vector<double> gradient = std::vector<double>(1000);
  std::int64_t steps = 0;

  std::vector<kolo::NamedTensor> gradients() { return {{"weights", gradient}}; }
  void step() {
    for (std::size_t i = 0; i < weights.size(); ++i) weights[i] += gradient[i];
    ++steps;
  }
  void require_right() const {
    const auto n = static_cast<double>(steps);
    for (const double weight : weights)
      if (weight != n * (n + 1.0) / 2.0)
        throw std::runtime_error(fmt::format("a weight is {} after {} steps", weight, steps));
  }
};

class Training {
 public:
  Training(std::string folder, std::int64_t steps, int save_ms)
      : folder_(std::move(folder)),
        steps_(steps),
        save_time_(save_ms),
        checkpoints_({.directory = folder_ + "/checkpoints"}) {}

  void run() {
    load();
    train([] {});
  }

  void run_elastically() {
    kolo::elastic::State state;
    state.add("weights", model_.weights).add("steps", model_.steps);
    kolo::elastic::run(state, [&] {
      if (state.commits() == 1) {
        load();
        state.commit();
      }
      train([&] { state.commit(); });
    });
  }

 private:
  void load() {
    if (const auto found = checkpoints_.load_latest()) {
      kolo::load_state({{"weights", model_.weights}}, found->part("weights"));
      model_.steps = found->step;
    }
    model_.require_right();
    say("begins after step");
  }

  void train(const std::function<void()>& commit) {
    kolo::DistributedOptimizer optimizer(model_);
    static_cast<void>(kolo::stop_requested());  // from now on the rank can be stopped
    std::ofstream(fmt::format("{}/rank.{}", folder_, kolo::rank())) << ::getpid();
    while (model_.steps < steps_) {
      // Ranks are unequally fast.
      std::this_thread::sleep_for(
          std::chrono::microseconds(200 * ((model_.steps + 3 * kolo::rank()) % 7)));
      for (double& each : model_.gradient) each = static_cast<double>(model_.steps + 1);
      optimizer.step();
      const bool stops = kolo::stop_requested();
      if (stops || model_.steps == steps_) save();
      if (stops) return say("stops after step");
      if (model_.steps % 10 == 0) commit();
    }
    say("ends after step");
  }

  void save() {
    kolo::on_one_rank(0, [&] { std::this_thread::sleep_for(save_time_); });
    checkpoints_.save(model_.steps, {{"weights", kolo::StateView({{"weights", model_.weights}})}});
  }

  void say(const std::string& what) const {
    std::cout << fmt::format("rank {} {} {}\n", kolo::rank(), what, model_.steps) << std::flush;
  }

  std::string folder_;
  std::int64_t steps_;
  std::chrono::milliseconds save_time_;
  kolo::Checkpointer checkpoints_;
  Model model_{};
};

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc < 4) throw std::runtime_error("usage: stop_trainer_program FOLDER STEPS SAVE_MS");
    const kolo::Session session;
    Training training(argv[1], std::atoll(argv[2]), std::atoi(argv[3]));
    if (argc > 4)
      training.run_elastically();
    else
      training.run();
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "stop_trainer_program: " << error.what() << '\n';
    return 1;
  }
}
