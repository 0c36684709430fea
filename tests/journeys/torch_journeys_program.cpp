// SPDX-License-Identifier: Apache-2.0
// Random training programs with LibTorch. journeys_main.hpp has the options.
#include "journeys_main.hpp"
#include "torch_trainer.hpp"

int main(int argc, char** argv) {
  using namespace kolo::internal::journeys;
  return run_journeys(argc, argv, torch_maker(), /*torch=*/true);
}
