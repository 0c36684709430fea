#include "shm_factory.hpp"

namespace kolo::backend {

std::int64_t single_copy_from() { return 1; }

}  // namespace kolo::backend
