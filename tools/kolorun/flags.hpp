// SPDX-License-Identifier: Apache-2.0
// The options as written on the command line.
#pragma once

#include <optional>
#include <string>

#include "options.hpp"

namespace kolorun {

struct Flags {
  int np = 0;
  int slots = -1;  // negative: not given
  int min_np = 0;
  int max_np = 0;
  std::string hosts;
  std::string hostfile;
  std::string rsh;
  std::string rendezvous;
  std::string standby;
  std::string secret_file;
  std::string filter;
  std::string port_range;
  std::string cooldown = "10:600";
  double start_timeout = 600;
  double elastic_timeout = 600;
  double lease = 10;
  double grace = 30;
  double timeout = 0;
};

/// Checks that the options fit together, and derives the remaining options. Throws UsageError.
void fill_options(const Flags& flags, const std::optional<rendezvous::Secret>& secret,
                  Options& options);

}  // namespace kolorun
