// SPDX-License-Identifier: Apache-2.0
// Merges the files of a checkpoint:
//
//     kolo-checkpoint merge run1/checkpoint-0000000500 whole.safetensors
//     kolo-checkpoint merge --part model run1/checkpoint-0000000500 model.safetensors
#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <kolo/training/checkpoint.hpp>
#include <kolo/version.hpp>
#include <string>

namespace {

constexpr int wrong_usage_status = 2;

int run(int argc, char** argv) {
  std::string from, to, part;
  CLI::App app(
      "Merges the files of a checkpoint into one safetensors file, and verifies their "
      "checksums.\n\n"
      "  kolo-checkpoint merge run1/checkpoint-0000000500 whole.safetensors\n"
      "  kolo-checkpoint merge --part model run1/checkpoint-0000000500 model.safetensors",
      "kolo-checkpoint");
  app.footer(
      "Exit status: 0; 1 if a file cannot be read or written; 2 if the command line cannot be "
      "used.");
  app.set_version_flag("--version", "kolo-checkpoint " + std::string(kolo::version));
  app.require_subcommand(1);
  CLI::App* const merge = app.add_subcommand("merge", "Write one file");
  merge->add_option("CHECKPOINT", from, "The folder of the checkpoint, or its index")->required();
  merge->add_option("FILE", to, "The file to write; an existing one is replaced")->required();
  merge->add_option("--part", part,
                    "Write only this part, such as \"model\", without its name in the names of the "
                    "tensors, as other programs read it");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? EXIT_SUCCESS : wrong_usage_status;
  }
  kolo::merge_checkpoint(from, to, part);
  return EXIT_SUCCESS;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "kolo-checkpoint: %s\n", error.what());
    return EXIT_FAILURE;
  }
}
