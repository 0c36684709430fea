// What a training loop needs beside its optimizer: averaged metrics, schedules, shards of the data,
// and progress on one rank. Framework-free.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kolo {

/// The mean over all ranks of `value`: the same bits on every rank. Collective. Errors as
/// `allreduce`.
[[nodiscard]] double average(double value);

/// The means of several values, each rank counting by its `weight` (say, how many examples it saw).
/// Collective; the number of values must be alike. Weights that add up to zero give zeros.
/// Throws InvalidArgument for a negative or non-finite weight.
[[nodiscard]] std::vector<double> average(std::vector<double> values, double weight = 1.0);

struct LearningRateWarmupOptions {
  double from = 0.0;       ///< The learning rate at step 0.
  double to = 0.0;         ///< The learning rate from step `steps` on.
  std::int64_t steps = 0;  ///< How many steps the way takes; 0: none.
};

/// A learning rate that grows linearly over the first steps (Goyal et al., 2017,
/// https://arxiv.org/abs/1706.02677): large batches need it. Pure: no communication.
class LearningRateWarmup {
 public:
  /// Throws InvalidArgument for a negative number of steps.
  explicit LearningRateWarmup(const LearningRateWarmupOptions& options);
  [[nodiscard]] double operator()(std::int64_t step) const;

 private:
  LearningRateWarmupOptions options_;
};

struct DistributedSamplerOptions {
  std::int64_t examples = 0;  ///< How many examples the data set has, on every rank the same.
  int rank = -1;              ///< This rank; -1: the session's.
  int ranks = -1;             ///< How many ranks share the data; -1: the session's.
  bool shuffle = true;        ///< A new order each epoch, the same on all ranks.
  std::uint64_t seed = 0;     ///< Of the order; must be alike on all ranks.
  bool even = true;  ///< Every rank gets equally many: up to `ranks - 1` examples are left out
                     ///< of an epoch (others in the next, if shuffled). Else none is left out.
};

/// Shares the examples of a data set among ranks: no example is given to two of them.
/// Pure: every rank computes the same order. Not thread-safe.
class DistributedSampler {
 public:
  /// Throws InvalidArgument for a negative number of examples or a rank outside `ranks`.
  explicit DistributedSampler(const DistributedSamplerOptions& options);

  /// This rank's examples in `epoch`, in the order to be visited.
  [[nodiscard]] std::vector<std::int64_t> indices(std::int64_t epoch) const;

 private:
  DistributedSamplerOptions options_;
};

struct ProgressBarOptions {
  std::string title{};     ///< Printed before the bar.
  std::int64_t total = 0;  ///< Steps to be done.
  bool enabled = true;     ///< Give `kolo::rank() == 0` here, so that one rank speaks.
};

/// Progress on standard error: a bar that is redrawn on a terminal, else a line every tenth of the
/// way. Not thread-safe.
class ProgressBar {
 public:
  explicit ProgressBar(const ProgressBarOptions& options);

  /// `done` of `total` steps are done; `note` follows the bar (a loss, say).
  void update(std::int64_t done, const std::string& note = {});
  /// Ends the line. Called by the destructor if it was not called before.
  void finish();
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

 private:
  ProgressBarOptions options_;
  bool terminal_;
  bool finished_ = false;
  std::int64_t last_tenth_ = -1;
  std::int64_t started_ns_;
  std::int64_t drawn_ns_ = 0;
};

}  // namespace kolo
