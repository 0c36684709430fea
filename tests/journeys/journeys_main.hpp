// SPDX-License-Identifier: Apache-2.0
// The command line shared by the programs of journeys.
//
//   --seed S        seed of the first program; the others follow (random)
//   --runs N        max number of programs (1, unless --seconds is given)
//   --seconds S     max time
//   --without A,B   without these features
//   --with A,B      with these features in addition
//   --only A,B      with exactly these features
//   --epochs N, --steps N   max number of epochs and steps of a program
//   --patience S    timeout of a program (60)
//   --words FILE    append the report of rank 0 to this file
//   --kill          kill a rank after the last program
//   --print         print the programs, run nothing
#pragma once

#include "trainer.hpp"

namespace kolo::internal::journeys {

/// The main function of the program.
int run_journeys(int argc, char** argv, const Maker& maker, bool torch);

}  // namespace kolo::internal::journeys
