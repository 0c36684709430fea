#include "backend/gpu/nccl/library.hpp"

namespace kolo::backend::nccl {

std::string built_version() { return ""; }

std::shared_ptr<Library> find_library() { return nullptr; }

}  // namespace kolo::backend::nccl
