#include "backend/cuda/runtime.hpp"

namespace kolo::backend::cuda {

std::string built_version() { return ""; }

std::shared_ptr<Runtime> find_runtime() { return nullptr; }

}  // namespace kolo::backend::cuda
