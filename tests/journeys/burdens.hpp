// SPDX-License-Identifier: Apache-2.0
// Burdens of a session: many names, process sets that come and go, a rank that stops.
#pragma once

#include "incidents.hpp"

namespace kolo::internal::journeys {

/// All ranks submit many operations with distinct names, in different orders.
void many_names(const Scene& scene);

/// Process sets are added, used with names, and removed. They must not use up the cache.
void churn_sets(const Scene& scene);

/// The odd rank's process stops while the others continue in a set without it.
void stop(const Scene& scene);

}  // namespace kolo::internal::journeys
