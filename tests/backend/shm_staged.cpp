#include "backend/shm/shm_backend.hpp"
#include "shm_factory.hpp"

namespace kolo::backend {

std::int64_t single_copy_from() { return ShmBackend::never_single_copy; }

}  // namespace kolo::backend
