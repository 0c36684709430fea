// SPDX-License-Identifier: Apache-2.0
// Trainers with LibTorch's SGD.
#pragma once

#include "trainer.hpp"

namespace kolo::internal::journeys {

[[nodiscard]] Maker torch_maker();

}  // namespace kolo::internal::journeys
