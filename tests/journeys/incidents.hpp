// SPDX-License-Identifier: Apache-2.0
// Single incidents during an epoch, with their expected results.
#pragma once

#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "program.hpp"
#include "surroundings.hpp"

namespace kolo::internal::journeys {

struct Scene {
  const Program& program;
  const Event& event;
  std::string name;  // different for each event and visit
  int rank;
  int ranks;
  Helpers& helpers;

  [[nodiscard]] int odd() const { return event.odd % ranks; }
  [[nodiscard]] bool is_odd() const { return rank == odd(); }
  /// All ranks except the odd one.
  [[nodiscard]] std::vector<int> others() const {
    std::vector<int> staying;
    for (int other = 0; other < ranks; ++other)
      if (other != odd()) staying.push_back(other);
    return staying;
  }
};

template <typename Expected>
void require_throws(const std::string& what, const std::function<void()>& call) {
  try {
    call();
  } catch (const Expected&) {
    return;
  } catch (const std::exception& error) {
    throw Unexpected(what + " failed in another way: " + error.what());
  }
  throw Unexpected(what + " did not fail");
}

/// Runs an incident. Throws Unexpected. If the incident ends the session, it returns once the
/// session is unusable; the odd rank of a departure may throw Departure.
void run_incident(const Scene& scene);

/// Requires that a sum of all ranks' numbers is right.
void require_working_session(const Scene& scene, const std::string& after);

}  // namespace kolo::internal::journeys
