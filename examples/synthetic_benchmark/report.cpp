// SPDX-License-Identifier: Apache-2.0
#include "report.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <kolo/session.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "statistics.hpp"

namespace benchmark {
namespace {

bool as_tensorflow(const Options& options) { return options.format == "tf_cnn_benchmarks"; }

constexpr double confidence = 1.96;  // standard deviations around 95 % of a normal distribution

const char* compression_name(const Options& options) {
  if (options.fp16) return "fp16";
  return options.bf16 ? "bf16" : "none";
}

// Speed of all ranks relative to n times one rank alone, or to all ranks without exchange.
struct Efficiency {
  std::vector<double> of_ideal, of_side_by_side;
};

Efficiency efficiency_of(const Measurement& results) {
  Efficiency efficiency;
  for (std::size_t i = 0; i < results.one_alone.size(); ++i) {
    efficiency.of_ideal.push_back(results.all_ranks[i] / (kolo::size() * results.one_alone[i]));
    efficiency.of_side_by_side.push_back(results.all_ranks[i] / results.side_by_side[i]);
  }
  return efficiency;
}

void print_ratios(const char* what, const std::vector<double>& ratios) {
  const auto [least, most] = std::minmax_element(ratios.begin(), ratios.end());
  std::printf("%s: %.1f %% (%.1f to %.1f)\n", what, 100 * median_of(ratios), 100 * *least,
              100 * *most);
}

void print_text(const Options& options, const Measurement& results) {
  const Spread total = spread_of(results.all_ranks);
  const int ranks = kolo::size();
  const char* device = results.device.c_str();
  if (as_tensorflow(options)) {
    std::printf("%s\ntotal images/sec: %.2f\n%s\n", std::string(64, '-').c_str(), total.mean,
                std::string(64, '-').c_str());
  } else {
    std::printf("Img/sec per %s: %.1f +-%.1f\n", device, total.mean / ranks,
                confidence * total.deviation / ranks);
    std::printf("Total img/sec on %d %s(s): %.1f +-%.1f\n", ranks, device, total.mean,
                confidence * total.deviation);
  }
  if (!options.scaling_efficiency) return;
  const Efficiency efficiency = efficiency_of(results);
  std::printf("Img/sec of one %s alone: %.1f; of %d side by side without exchange: %.1f\n", device,
              median_of(results.one_alone), ranks, median_of(results.side_by_side));
  print_ratios("Scaling efficiency", efficiency.of_ideal);
  print_ratios("Against the same ranks without exchange", efficiency.of_side_by_side);
}

// Prints the header lines of tf_cnn_benchmarks, except those that do not apply to Kolo.
void print_tensorflow_header(const Options& options, const Measurement& results) {
  constexpr double imagenet = 1'281'167;  // images to train on
  const auto global = static_cast<long long>(options.batch_size) * kolo::size();
  const int batches = options.iterations * options.batches_per_iteration;
  std::string devices;
  for (int rank = 0; rank < kolo::size(); ++rank) {
    devices += (rank > 0 ? ", 'kolo/" : "'kolo/") +
               std::string(results.device == "GPU" ? "gpu:" : "cpu:") + std::to_string(rank) + "'";
  }
  std::printf("Kolo:        %s\nModel:       %s\nDataset:     imagenet (synthetic)\n",
              kolo::build_info().version.c_str(), options.model.c_str());
  std::printf("Mode:        training\nBatch size:  %lld global\n             %lld per device\n",
              global, static_cast<long long>(options.batch_size));
  std::printf("Num batches: %d\nNum epochs:  %.2f\nDevices:     [%s]\n", batches,
              static_cast<double>(global) * batches / imagenet, devices.c_str());
  std::printf("Data format: NCHW\nOptimizer:   sgd\nVariables:   kolo\n==========\n");
  std::printf("Running warm up\n");
  std::fflush(stdout);
}

void print_json(const Options& options, const Measurement& results) {
  const Spread total = spread_of(results.all_ranks);
  const double ranks = kolo::size();
  nlohmann::json report{{"model", options.model},
                        {"parameters", results.parameters},
                        {"batch_size", options.batch_size},
                        {"image_size", options.image_size},
                        {"device", results.device},
                        {"ranks", kolo::size()},
                        {"compression", compression_name(options)},
                        {"images_per_second_per_device", total.mean / ranks},
                        {"confidence_per_device", confidence * total.deviation / ranks},
                        {"images_per_second", total.mean},
                        {"confidence", confidence * total.deviation},
                        {"step_jitter_of_rank_0", jitter_of(results.steps)}};
  if (options.scaling_efficiency) {
    const Efficiency efficiency = efficiency_of(results);
    report["images_per_second_of_one_alone"] = median_of(results.one_alone);
    report["images_per_second_side_by_side"] = median_of(results.side_by_side);
    report["scaling_efficiency"] = median_of(efficiency.of_ideal);
    report["against_side_by_side"] = median_of(efficiency.of_side_by_side);
  }
  std::printf("%s\n", report.dump().c_str());
}

}  // namespace

LiveReport::LiveReport(const Options& options, const Measurement& results)
    : options_(options), results_(results), silent_(kolo::rank() != 0 || options.json) {
  if (silent_) return;
  if (as_tensorflow(options)) {
    print_tensorflow_header(options, results);
    return;
  }
  std::printf("Model: %s, %lld parameters\nBatch size: %lld\nNumber of %ss: %d\n",
              options.model.c_str(), static_cast<long long>(results.parameters),
              static_cast<long long>(options.batch_size), results.device.c_str(), kolo::size());
  std::printf("Running warmup...\n");
  std::fflush(stdout);
}

void LiveReport::begin() const {
  if (silent_) return;
  std::printf(as_tensorflow(options_) ? "Done warm up\nStep\tImg/sec\ttotal_loss\n"
                                      : "Running benchmark...\n");
  std::fflush(stdout);
}

// tf_cnn_benchmarks prints the first step and every tenth. This report prints the first step and
// the last step of each iteration.
void LiveReport::step(const std::function<double()>& loss) const {
  if (silent_ || !as_tensorflow(options_)) return;
  const std::vector<double>& steps = results_.steps;
  const std::size_t every = static_cast<std::size_t>(options_.batches_per_iteration);
  if (steps.size() != 1 && steps.size() % every != 0) return;
  const double error = spread_of(steps).deviation / std::sqrt(static_cast<double>(steps.size()));
  std::printf("%zu\timages/sec: %.1f +/- %.1f (jitter = %.1f)\t%.3f\n", steps.size(),
              mean_speed_of(steps), error, jitter_of(steps), loss());
  std::fflush(stdout);
}

void LiveReport::iteration(int number) const {
  if (silent_ || as_tensorflow(options_)) return;
  std::printf("Iter #%d: %.1f img/sec per %s (jitter of a step: %.1f)\n", number,
              results_.this_rank.back(), results_.device.c_str(), jitter_of(results_.steps));
  std::fflush(stdout);
}

void print_results(const Options& options, const Measurement& results) {
  if (kolo::rank() != 0) return;
  if (options.json) {
    print_json(options, results);
  } else {
    print_text(options, results);
  }
}

}  // namespace benchmark
