// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include <CLI/CLI.hpp>
#include <iostream>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>

namespace gpt {
namespace {

const CLI::Range positive(1, 1'000'000'000);
const CLI::Range not_negative(0, 1'000'000'000);
const std::map<std::string, kolo::Compression> compressions = {{"none", kolo::Compression::none},
                                                               {"fp16", kolo::Compression::fp16},
                                                               {"bf16", kolo::Compression::bf16}};
const std::map<std::string, std::optional<kolo::Sharding>> shardings = {
    {"none", std::nullopt},
    {"full", std::nullopt},
    {"state", kolo::Sharding::state},
    {"gradients", kolo::Sharding::state_and_gradients}};

void add_network_options(CLI::App& app, Config& network) {
  app.add_option("--layers", network.layers, "Blocks of the network")->check(positive);
  app.add_option("--heads", network.heads, "Heads of the attention")->check(positive);
  app.add_option("--width", network.width, "Channels, a multiple of the heads")->check(positive);
  app.add_option("--context", network.context, "Bytes per window")->check(positive);
}

void add_training_options(CLI::App& app, Options& options) {
  app.add_option("--steps", options.steps, "Optimizer steps, over which the learning rate decays")
      ->check(not_negative);
  app.add_option("--stop-at", options.stop_at, "Stop after this step; a later run can resume")
      ->check(not_negative);
  app.add_option("--batch-size", options.batch_size, "Windows per rank and pass")->check(positive);
  app.add_option("--accumulate", options.accumulate,
                 "Passes whose gradients accumulate before they are reduced")
      ->check(positive);
  app.add_option("--learning-rate", options.learning_rate,
                 "Peak learning rate, for any number of ranks")
      ->check(CLI::PositiveNumber);
  app.add_option("--warmup", options.warmup, "Steps until the peak learning rate")
      ->check(not_negative);
  app.add_option("--clip", options.clip, "Maximum joint norm of the gradients")
      ->check(CLI::PositiveNumber);
  app.add_option_function<std::string>(
         "--compression",
         [&options](const std::string& name) { options.compression = compressions.at(name); },
         "Format in which gradients are sent")
      ->check(CLI::IsMember({"none", "fp16", "bf16"}))
      ->default_str("none");
  app.add_option_function<std::string>(
         "--sharding",
         [&options](const std::string& name) {
           options.sharding = shardings.at(name);
           options.fully_sharded = name == "full";
         },
         "Shard AdamW's moments over the ranks (state), or also the reduced gradients (gradients), "
         "or also the parameters (full)")
      ->check(CLI::IsMember({"none", "state", "gradients", "full"}))
      ->default_str("none");
}

}  // namespace

std::optional<Options> parse_options(int argc, char** argv, bool speak) {
  Options options;
  CLI::App app("Trains a small GPT on text, on any number of ranks.", "transformer");
  app.option_defaults()->always_capture_default();
  app.add_option("--text", options.text, "Text file on rank 0; by default, stories are generated");
  app.add_option("--text-size", options.text_size, "Bytes of the generated stories")
      ->check(positive);
  add_network_options(app, options.network);
  add_training_options(app, options);
  app.add_option("--checkpoints", options.checkpoints,
                 "Directory for checkpoints; training resumes from the newest one in it");
  app.add_option("--validate-every", options.validate_every,
                 "Steps between validations, each with a checkpoint")
      ->check(positive);
  app.add_option("--log-every", options.log_every, "Steps between prints of the loss")
      ->check(positive);
  app.add_option("--sample", options.sample, "Bytes of text to generate at the end")
      ->check(not_negative);
  app.add_option("--seed", options.seed, "Seed of all random numbers");
  try {
    app.parse(argc, argv);
    if (options.network.width % options.network.heads != 0)
      throw CLI::ValidationError("--width", "must be a multiple of --heads");
  } catch (const CLI::CallForHelp&) {
    if (speak) std::cout << app.help();
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    throw std::runtime_error(std::string(error.what()) + " (--help lists the options)");
  }
  return options;
}

}  // namespace gpt
