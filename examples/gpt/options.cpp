// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include <CLI/CLI.hpp>
#include <map>
#include <string>

#include "program.hpp"

namespace large {
namespace {

const CLI::Range positive(1, 1'000'000'000);

void add_shape_options(CLI::App& app, Shape& shape) {
  const auto add = [&](const char* name, std::int64_t& value, const char* meaning) {
    app.add_option(name, value, meaning)->check(positive)->capture_default_str();
  };
  add("--layers", shape.layers, "Blocks of the model");
  add("--width", shape.width, "Channels, a multiple of the heads");
  add("--heads", shape.heads, "Heads of the attention");
  add("--context", shape.context, "Tokens per window");
  app.add_option("--vocabulary", shape.vocabulary, "Tokens that exist; a token is a byte")
      ->check(CLI::Range(256, 10'000'000))
      ->capture_default_str();
}

void add_training_options(CLI::App& app, Options& options) {
  const std::map<std::string, Kind> kinds{{"none", Kind::none}, {"full", Kind::full}};
  app.add_option("--sharding", options.sharding,
                 "none: each rank has the whole model; full: each has its share (default)")
      ->transform(CLI::CheckedTransformer(kinds));
  app.add_option("--text", options.text, "File to train on (default: generated stories)");
  app.add_option("--text-size", options.text_size, "Bytes of generated stories")
      ->check(positive)
      ->capture_default_str();
  app.add_option("--steps", options.steps, "Steps")->check(positive)->capture_default_str();
  app.add_option("--batch-size", options.batch_size, "Windows per rank and step")
      ->check(positive)
      ->capture_default_str();
  app.add_option("--learning-rate", options.learning_rate, "Learning rate of AdamW")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--clip", options.clip, "Largest norm of the gradient; 0: do not clip")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--units-ahead", options.units_ahead,
                 "Blocks gathered before they are needed, with --sharding full")
      ->check(CLI::Range(0, 1000))
      ->capture_default_str();
  app.add_option("--load", options.load, "Start from this safetensors file");
  app.add_option("--save", options.save, "Write the trained model to this safetensors file");
  app.add_option("--threads", options.threads, "Threads of LibTorch per rank")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--seed", options.seed, "Seed of the model and of the text")
      ->capture_default_str();
}

}  // namespace

std::optional<Options> parse_options(int argc, char** argv) {
  Options options;
  CLI::App app("Trains a GPT of which each rank holds only a share.", "gpt");
  add_shape_options(app, options.shape);
  add_training_options(app, options);
  if (!examples::parse(app, argc, argv)) return std::nullopt;
  if (options.shape.width % options.shape.heads != 0)
    throw examples::UsageError("--width: must be a multiple of --heads");
  return options;
}

}  // namespace large
