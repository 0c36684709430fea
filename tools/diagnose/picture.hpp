// SPDX-License-Identifier: Apache-2.0
// A picture of a recorded run: a row of bars for each rank.
#pragma once

#include <string>
#include <vector>

#include "activity.hpp"

namespace diagnose {

/// The steps and ranks, and the late rank, in a sentence.
[[nodiscard]] std::string describe(const Activity& activity);

/// A self-contained SVG. Names from the run are escaped.
[[nodiscard]] std::string draw(const Activity& activity);

struct DrawOptions {
  std::vector<std::string> files{};
  std::string output = "kolo-run.svg";
  std::string steps{};  // FIRST:LAST; "": the last ones
};

/// Reads the files and writes the picture. Returns the exit status. Throws std::runtime_error.
[[nodiscard]] int draw_files(const DrawOptions& options);

}  // namespace diagnose
