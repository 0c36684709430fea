// SPDX-License-Identifier: Apache-2.0
// The command line shared by the programs of journeys.
//
//   --seed N        seed of the first program; the others follow; default: random
//   --programs N    maximum number of programs; without any limit one
//   --seconds S     approximate duration
//   --without A,B   without these features
//   --only A,B      with exactly these features
//   --epochs N, --steps N   maximum numbers
//   --patience S    a program that takes longer has failed (60)
//   --kill          kill a rank after the last program
//   --print         print the program without running it
#pragma once

#include "trainer.hpp"

namespace kolo::internal::journeys {

/// The main function of the program.
int run_journeys(int argc, char** argv, const Maker& maker, bool torch);

}  // namespace kolo::internal::journeys
