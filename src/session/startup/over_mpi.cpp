// SPDX-License-Identifier: Apache-2.0
#include <mpi.h>

#include "messenger/mpi_messenger.hpp"
#include "session/job/mpi_rendezvous.hpp"
#include "session/startup/start.hpp"
#include "transport/mpi_transport.hpp"

namespace kolo::internal::session {
namespace {

/// Two duplicated communicators, one for control messages and one for data, so that no receive
/// matches a message of the other kind or of the program.
class Communicators : public OverMpi {
 public:
  explicit Communicators(const MpiRendezvous& world)
      : control_(world.duplicate()), data_(world.duplicate()) {
    max_tag = messenger::find_max_tag();
  }

  [[nodiscard]] transport::Transport& control() override { return transport_; }
  [[nodiscard]] std::unique_ptr<messenger::Messenger> carry_data(
      std::chrono::nanoseconds afterwards) const override {
    return std::make_unique<messenger::MpiMessenger>(data_.get(), max_tag, afterwards);
  }
  void leak() override {
    control_.leak();
    data_.leak();
  }

 private:
  Communicator control_;
  Communicator data_;
  transport::MpiTransport transport_{control_.get()};
};

}  // namespace

std::shared_ptr<Engine> start_engine_over_mpi(const StartArguments& arguments) {
  const auto& given = arguments.communicator;
  MpiRendezvous world(given == nullptr ? MPI_COMM_NULL : given->comm);
  return start_engine(world, arguments, std::make_unique<Communicators>(world));
}

}  // namespace kolo::internal::session
