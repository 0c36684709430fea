// SPDX-License-Identifier: Apache-2.0
#include "backend/gpu/runtime/runtime.hpp"

namespace kolo::internal::backend::gpu {

std::string built_version() { return ""; }

std::shared_ptr<Runtime> find_runtime() { return nullptr; }

}  // namespace kolo::internal::backend::gpu
