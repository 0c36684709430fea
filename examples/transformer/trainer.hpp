// The training: everything in which many ranks differ from one is in here.
#pragma once

#include <chrono>
#include <cstdint>
#include <kolo/kolo.hpp>
#include <optional>
#include <string>
#include <vector>

#include "adamw.hpp"
#include "network.hpp"
#include "options.hpp"
#include "text.hpp"

namespace gpt {

class Trainer {
 public:
  /// Collective. The text is the same on all ranks; its last tenth is not trained on. Throws
  /// kolo::Error if it is too short. Goes on from the newest checkpoint if there is one.
  Trainer(const Options& options, std::string text);

  /// Returns the loss on the text that is not trained on. Collective.
  double run();

  /// Text that the network makes up. On this rank alone.
  [[nodiscard]] std::string write(int bytes);

 private:
  void resume();
  void save(double validation_loss);
  void begin_epoch_if_due();
  void train_step();
  [[nodiscard]] Batch next_batch();
  [[nodiscard]] double validate();
  void report();
  [[nodiscard]] std::int64_t tokens_per_step() const;

  const Options options_;
  const std::string text_;
  const Layout layout_;
  Windows train_, validation_;
  AdamW adamw_;
  kolo::DistributedOptimizer<AdamW> optimizer_;
  Network<float> network_;
  kolo::DistributedSampler sampler_;
  kolo::LearningRateSchedule learning_rate_;
  kolo::MetricAverage metrics_;
  std::optional<kolo::Checkpointer> checkpoints_;

  std::int64_t step_ = 0;
  std::vector<std::int64_t> windows_;  // this rank's, of what is left of the epoch
  std::size_t next_window_ = 0;
  std::int64_t reported_step_ = 0;
  std::chrono::steady_clock::time_point reported_;
};

}  // namespace gpt
