#include "comparison.hpp"

#include <cstdio>
#include <kolo/kolo.hpp>

namespace xray {

std::vector<Outcome> train(const Options& options, const Split& files) {
  std::vector<Outcome> outcomes;
  if (options.compare && kolo::size() > 1) {
    // KOLO: a set of one rank; the others wait.
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

}  // namespace xray
