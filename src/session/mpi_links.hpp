// Control and data over MPI, each with a communicator of its own.
#pragma once

#include "backend/mpi/mpi_backend.hpp"
#include "session/links.hpp"
#include "session/mpi_environment.hpp"
#include "transport/mpi_transport.hpp"

namespace kolo::session {

class MpiLinks : public Links {
 public:
  /// Collective over `world`, which is not kept.
  explicit MpiLinks(MPI_Comm world)
      : control_(Communicator::duplicate(world)), data_(Communicator::duplicate(world)) {}

  [[nodiscard]] transport::Transport& transport() override { return transport_; }
  [[nodiscard]] backend::Backend& backend() override { return backend_; }

 private:
  Communicator control_;
  Communicator data_;
  transport::MpiTransport transport_{control_.get()};
  backend::MpiBackend backend_{data_.get()};
};

}  // namespace kolo::session
