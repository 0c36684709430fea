// What connects this rank with the others: a way for control messages, and one for data.
#pragma once

#include "backend/backend.hpp"
#include "transport/transport.hpp"

namespace kolo::session {

/// Owns both, and what they stand on. The seam between the engine and MPI.
class Links {
 public:
  virtual ~Links() = default;
  [[nodiscard]] virtual transport::Transport& transport() = 0;
  [[nodiscard]] virtual backend::Backend& backend() = 0;
};

}  // namespace kolo::session
