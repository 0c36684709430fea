// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include <CLI/CLI.hpp>
#include <map>
#include <string>

#include "program.hpp"

namespace local_sgd {
namespace {

const std::map<std::string, Algorithm> algorithms{
    {"average", Algorithm::average}, {"local", Algorithm::local}, {"diloco", Algorithm::diloco}};

void add_outer_options(CLI::App& app, Options& options) {
  app.add_option_function<std::string>(
         "--algorithm",
         [&options](const std::string& name) { options.algorithm = algorithms.at(name); },
         "Algorithm by which ranks average gradients or parameters")
      ->check(CLI::IsMember({"average", "local", "diloco"}))
      ->default_str("local");
  app.add_option("--interval", options.interval, "Steps between communications; not for average")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  app.add_option("--outer-rate", options.outer_rate, "Learning rate of diloco's outer optimizer")
      ->check(CLI::Range(0.0, 10.0))
      ->capture_default_str();
  app.add_option("--outer-momentum", options.outer_momentum,
                 "Nesterov momentum of diloco's outer optimizer")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
}

}  // namespace

std::optional<Options> parse_options(int argc, char** argv) {
  Options options;
  CLI::App app("Trains a small network on CIFAR-10 with infrequent communication.", "local_sgd");
  add_outer_options(app, options);
  add_shared_options(app, options);
  app.add_option("--learning-rate", options.learning_rate,
                 "Learning rate of each rank's SGD, after warm-up")
      ->check(CLI::Range(0.0, 10.0))
      ->capture_default_str();
  app.add_option("--momentum", options.momentum, "Momentum of each rank's SGD")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  if (!examples::parse(app, argc, argv)) return std::nullopt;
  return options;
}

}  // namespace local_sgd
