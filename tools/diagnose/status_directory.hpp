// SPDX-License-Identifier: Apache-2.0
// The directory in which the status files of jobs lie that kolorun has started.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <string>

namespace kolo::internal {

/// Of the user of this process. A kolorun with process ID n uses the file `n.json` in it.
[[nodiscard]] inline std::string status_directory() {
  const char* directory = std::getenv("TMPDIR");
  return std::string(directory == nullptr || *directory == '\0' ? "/tmp" : directory) + "/kolo-" +
         std::to_string(::getuid());
}

}  // namespace kolo::internal
