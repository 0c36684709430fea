// SPDX-License-Identifier: Apache-2.0
// The compressed lists in Slurm's variables. `scontrol show hostnames` expands node lists too, but
// containers inside a job often lack it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kolorun {

/// Expands a list of nodes such as "rack[1-2]n[08-10,15]-ib,login"; numbers keep their leading
/// zeros. Throws UsageError.
[[nodiscard]] std::vector<std::string> expand_nodes(std::string_view list);

/// Expands a list of numbers such as "4(x2),3", which means 4, 4 and 3. Throws UsageError.
[[nodiscard]] std::vector<int> expand_counts(std::string_view list);

}  // namespace kolorun
