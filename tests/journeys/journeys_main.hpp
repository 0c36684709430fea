// SPDX-License-Identifier: Apache-2.0
// The command line that the programs of journeys share.
//
//   --seed N        the first program's seed, the others follow; without it a random one
//   --programs N    at most so many; without any limit one
//   --seconds S     for about so long
//   --without A,B   without these features
//   --only A,B      with exactly these features
//   --epochs N, --steps N   at most so many
//   --patience S    a program that takes longer has failed (60)
//   --kill          kill a rank after the last program
//   --print         print the program, run nothing
#pragma once

#include "trainer.hpp"

namespace kolo::internal::journeys {

/// The program's main.
int run_journeys(int argc, char** argv, const Maker& maker, bool torch);

}  // namespace kolo::internal::journeys
