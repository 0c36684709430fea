// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include <CLI/CLI.hpp>

#include "program.hpp"

namespace retinanet {
namespace {

CLI::Range count(int least) { return CLI::Range(least, 1'000'000); }

void add_data_options(CLI::App& app, Options& options) {
  app.add_option(
         "--data", options.data,
         "Directory with annotations/instances_train2017.json and train2017/, and the same for val")
      ->required();
  app.add_option("--generate", options.generate,
                 "First generate this many pictures of shapes there, on rank 0, unless the "
                 "directory exists")
      ->check(count(0));
  app.add_option("--save", options.save,
                 "Directory for checkpoints; training resumes from the newest one in it");
  app.add_option("--pictures", options.pictures,
                 "Directory for pictures with the final detections");
  app.add_option("--pictures-count", options.pictures_count, "Pictures to write per evaluated part")
      ->check(count(0));
  app.add_option("--min-score", options.min_score, "Minimum score of detections that are drawn")
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--evaluate", options.evaluate, "Part of the data to evaluate")
      ->check(CLI::IsMember({"train", "val", "both"}));
  app.add_option("--evaluate-every", options.evaluate_every,
                 "Epochs between evaluations; 0: only after the last epoch")
      ->check(count(0));
}

void add_network_options(CLI::App& app, Options& options) {
  app.add_option("--backbone", options.backbone)
      ->check(CLI::IsMember({"resnet18", "resnet50", "tiny"}));
  app.add_option("--backbone-weights", options.backbone_weights,
                 "Safetensors file on rank 0 of a backbone that was trained to classify, with "
                 "torchvision's names; also to resume such a run");
  app.add_option("--channels", options.channels, "Channels of the pyramid and the heads")
      ->check(CLI::Range(8, 4096));
  app.add_option("--head-layers", options.head_layers,
                 "Convolutions of each head before its last one")
      ->check(CLI::Range(0, 16));
  app.add_option("--image-size", options.image_size,
                 "Pixels of the longer side to which pictures are scaled")
      ->check(CLI::Range(32, 4096));
  app.add_option("--anchor-size", options.anchor_size,
                 "Side of the smallest anchors, in distances between positions of their level")
      ->check(CLI::Range(0.5, 64.0));
}

void add_training_options(CLI::App& app, Options& options) {
  app.add_option("--epochs", options.epochs, "Epochs to train; 0: only evaluate")->check(count(0));
  app.add_option("--batch-size", options.batch_size, "Pictures per rank and step")->check(count(1));
  app.add_option("--learning-rate", options.learning_rate,
                 "Learning rate for 16 pictures per step over all ranks; scaled in proportion")
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--warmup-epochs", options.warmup_epochs)->check(CLI::Range(0.0, 1e6));
  app.add_flag("!--no-mirror", options.mirror, "Train without mirroring pictures");
  app.add_option("--seed", options.seed, "Seed of all random numbers");
  app.add_option("--threads", options.threads, "Threads per rank")->check(count(1));
  app.add_option("--loader-threads", options.loader_threads,
                 "Threads per rank that read and scale pictures ahead")
      ->check(count(0));
}

}  // namespace

std::vector<std::string> Options::parts_to_evaluate() const {
  if (evaluate == "both") return {"train", "val"};
  return {evaluate};
}

std::optional<Options> parse_options(int argc, char** argv) {
  Options options;
  CLI::App app("Trains RetinaNet to find objects in pictures.", "retinanet");
  app.option_defaults()->always_capture_default();
  add_data_options(app, options);
  add_network_options(app, options);
  add_training_options(app, options);
  if (!examples::parse(app, argc, argv)) return std::nullopt;
  return options;
}

}  // namespace retinanet
