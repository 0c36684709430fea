// SPDX-License-Identifier: Apache-2.0
// Calls that must be refused on this rank alone.
#pragma once

#include "incidents.hpp"

namespace kolo::internal::journeys {

/// The odd rank makes some invalid calls, or submits a pending name again.
void wrong_argument(const Scene& scene);

}  // namespace kolo::internal::journeys
