// SPDX-License-Identifier: Apache-2.0
// A trainer with LibTorch's SGD.
#pragma once

#include <memory>

#include "trainer.hpp"

namespace kolo::internal::journeys {

[[nodiscard]] std::unique_ptr<Trainer> make_torch_trainer(const TrainerArguments& arguments);

}  // namespace kolo::internal::journeys
