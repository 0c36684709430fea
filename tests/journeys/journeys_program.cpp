// SPDX-License-Identifier: Apache-2.0
// Random training programs without a framework. journeys_main.hpp has the options.
#include "journeys_main.hpp"
#include "trainer.hpp"

int main(int argc, char** argv) {
  using namespace kolo::internal::journeys;
  return run_journeys(argc, argv, plain_maker(), /*torch=*/false);
}
