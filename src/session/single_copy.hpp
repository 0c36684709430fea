// Whether ranks of a host read each other's private memory, or what was copied to shared memory.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <string>

#include "node/neighbourhood.hpp"
#include "session/settings.hpp"

namespace kolo::session {

struct SingleCopyChoice {
  /// Pieces of at least so many bytes are read where they lie.
  std::int64_t from = 0;
  /// Why the rank's demand cannot be met, or "".
  std::string problem{};
};

/// Collective over the ranks of the neighbourhood, and the same on all of them: any that says `off`
/// decides, then any that says `on`; else they try both ways and take the faster one.
[[nodiscard]] SingleCopyChoice choose_single_copy(MPI_Comm host,
                                                  const node::Neighbourhood& neighbours,
                                                  SingleCopy wanted);

}  // namespace kolo::session
