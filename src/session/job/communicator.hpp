// SPDX-License-Identifier: Apache-2.0
// Communicators of MPI.
#pragma once

#include <mpi.h>

#include <utility>

namespace kolo::internal::session {

/// What the program has given to `init`.
struct GivenCommunicator {
  MPI_Comm comm;
};

/// A communicator that is freed at the end of scope. Its errors are returned, not fatal.
class Communicator {
 public:
  /// Takes over `comm`.
  explicit Communicator(MPI_Comm comm);
  static Communicator duplicate(MPI_Comm comm);
  Communicator(Communicator&& other) noexcept : comm_(std::exchange(other.comm_, MPI_COMM_NULL)) {}
  ~Communicator();

  [[nodiscard]] MPI_Comm get() const { return comm_; }
  /// It is never freed: requests on it may never complete.
  void leak() { comm_ = MPI_COMM_NULL; }

 private:
  MPI_Comm comm_;
};

}  // namespace kolo::internal::session
