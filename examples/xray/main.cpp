// SPDX-License-Identifier: Apache-2.0
// Classifies gray images into two classes, such as chest X-rays with and without an opacity:
//
//     mpirun -np 2 xray --data chest_xray/train --compare
//
// The lines that make it distributed are marked KOLO here, in trainer.cpp and in roc.cpp.
#include "trainer.hpp"  // first, as clang 14 needs it

#include <ATen/Parallel.h>

#include <cstdio>
#include <vector>

#include "generator.hpp"
#include "program.hpp"

namespace {

using namespace xray;

Split find_images(const Options& options) {
  if (options.generate > 0) {
    examples::make_once(options.data,
                        [&] { generate(options.data, options.generate, options.seed); });
  }
  Split files;
  kolo::on_every_rank([&] {
    const ImageFolder folder = read_folder(options.data);
    files = split(folder, options.validation_fraction, options.seed);
    const std::vector<double> weights = class_weights(files.train);
    if (kolo::rank() != 0) return;
    std::printf("%zu images to train on, %zu to validate; '%s' counts %.2f, '%s' %.2f\n",
                files.train.size(), files.validation.size(), folder.classes[0].c_str(), weights[0],
                folder.classes[1].c_str(), weights[1]);
  });
  examples::check_same_sizes({static_cast<std::int64_t>(files.train.size()),
                              static_cast<std::int64_t>(files.validation.size())});
  return files;
}

/// Trains on all ranks; with `--compare` first on rank 0 alone. Rank 0 returns both outcomes, the
/// other ranks only that of all ranks. Collective.
std::vector<Outcome> train(const Options& options, const Split& files) {
  std::vector<Outcome> outcomes;
  if (options.compare && kolo::size() > 1) {
    // KOLO: a process set of one rank; the others wait.
    const kolo::ProcessSet alone = kolo::add_process_set({0});
    if (kolo::rank() == 0) {
      std::printf("Rank 0 alone:\n");
      outcomes.push_back(Trainer(options, files, alone).run());
      std::printf("All %d ranks:\n", kolo::size());
    }
    kolo::barrier();
  }
  outcomes.push_back(Trainer(options, files).run());
  return outcomes;
}

/// Prints a line per outcome.
void print_table(const std::vector<Outcome>& outcomes) {
  std::printf("\n%6s %14s %9s %9s %9s %9s %9s\n", "ranks", "epochs of each", "seconds", "images/s",
              "times", "accuracy", "AUC");
  for (const Outcome& outcome : outcomes) {
    std::printf("%6d %14d %9.1f %9.0f %9.2f %9.4f %9.4f\n", outcome.ranks, outcome.epochs,
                outcome.seconds, outcome.images_per_second,
                outcome.images_per_second / outcomes.front().images_per_second,
                outcome.best.accuracy, outcome.best.area);
  }
}

}  // namespace

int main(int argc, char** argv) {
  examples::keep_freed_memory();
  return examples::run(argc, argv, [&] {
    const auto options = parse_options(argc, argv);
    if (!options) return;
    at::set_num_threads(options->threads);
    const std::vector<Outcome> outcomes = train(*options, find_images(*options));
    if (kolo::rank() == 0) print_table(outcomes);
  });
}
