#include "data_path.hpp"

#include <kolo/session.hpp>

namespace perf {

std::string data_path() { return kolo::cpu_operations(); }

}  // namespace perf
