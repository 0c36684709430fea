// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include <CLI/CLI.hpp>

#include "models.hpp"
#include "program.hpp"

namespace benchmark {

std::optional<Options> parse_options(int argc, char** argv) {
  Options options;
  CLI::App app("Trains on synthetic images and measures images per second.", "synthetic_benchmark");
  app.option_defaults()->always_capture_default();
  const auto at_least = [](int least) { return CLI::Range(least, 1'000'000); };

  app.add_option("--model", options.model)->check(CLI::IsMember(model_names()));
  app.add_option("--batch-size", options.batch_size, "Images per rank and batch")
      ->check(at_least(1));
  app.add_option("--image-size", options.image_size,
                 "Side of the images in pixels; 0: the model's default")
      ->check(at_least(0));
  app.add_option("--num-warmup-batches", options.warmup_batches, "Batches that are not counted")
      ->check(at_least(0));
  app.add_option("--num-batches-per-iter", options.batches_per_iteration, "Batches per measurement")
      ->check(at_least(1));
  app.add_option("--num-iters", options.iterations, "Number of measurements")->check(at_least(1));
  app.add_option("--device", options.device, "Device; auto: this rank's GPU if there is one")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}));
  CLI::Option* fp16 = app.add_flag("--fp16-allreduce", options.fp16, "Send gradients as fp16");
  app.add_flag("--bf16-allreduce", options.bf16, "Send gradients as bf16")->excludes(fp16);
  app.add_flag("--scaling-efficiency", options.scaling_efficiency,
               "Also measure rank 0 alone, and all ranks without exchange, in turn");
  app.add_option("--format", options.format, "Benchmark whose output format to use")
      ->check(CLI::IsMember({"horovod", "tf_cnn_benchmarks"}));
  app.add_flag("--json", options.json, "Print one line of JSON instead");
  app.add_option("--threads", options.threads, "Threads per rank; 0: LibTorch's default")
      ->check(at_least(0));
  if (!examples::parse(app, argc, argv)) return std::nullopt;
  if (options.image_size == 0) options.image_size = image_size_of(options.model);
  return options;
}

}  // namespace benchmark
