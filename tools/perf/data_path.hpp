// Which way Kolo's data takes.
#pragma once

#include <string>

namespace perf {

/// For the column `path` of a report.
[[nodiscard]] std::string data_path();

}  // namespace perf
