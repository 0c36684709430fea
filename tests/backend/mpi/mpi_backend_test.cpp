// SPDX-License-Identifier: Apache-2.0
// Properties of the MPI backend only.
#include "backend/mpi/mpi_backend.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

#include "../fixture.hpp"
#include "backend/mpi/exchange.hpp"
#include "kolo/error.hpp"
#include "messenger/mpi_messenger.hpp"

namespace kolo::internal::backend {
namespace {

class MpiBackendRefuses : public BackendTest {};

TEST_F(MpiBackendRefuses, PiecesOfNoUse) {
  messenger::MpiMessenger messenger(comm_);
  EXPECT_THROW(MpiBackend(messenger, 0), InvalidArgument);
  EXPECT_THROW(MpiBackend(messenger, std::int64_t{1} << 31), InvalidArgument);
}

TEST_F(MpiBackendRefuses, TooFewTagsForOneBatch) {
  messenger::MpiMessenger too_few(comm_, 70);
  messenger::MpiMessenger enough(comm_, 71);
  messenger::MpiMessenger guaranteed(comm_, messenger::guaranteed_max_tag);
  EXPECT_THROW(MpiBackend{too_few}, InvalidArgument);
  EXPECT_EQ(MpiBackend(enough).sequence_span(), 1U);
  EXPECT_EQ(MpiBackend(guaranteed).sequence_span(), 455U);
  EXPECT_GE(messenger::find_max_tag(), messenger::guaranteed_max_tag);
}

using MpiExchange = BackendTest;

// If MPI kept the receive, it would take the message that the second exchange waits for, and write
// memory that belongs to the program again.
TEST_F(MpiExchange, AReceiveThatIsGivenUpDoesNotWriteItsMemory) {
  constexpr std::int64_t bytes = 64;
  constexpr std::uint64_t sequence = 3;
  messenger::MpiMessenger messenger(comm_);
  mpi::Endpoint endpoint(messenger, piece_bytes);
  std::vector<std::byte> given_up(bytes);
  std::vector<std::byte> received(bytes);
  const std::vector<std::byte> sent(bytes, std::byte{7});
  int pending = 0;
  if (rank_ == 0 && size_ > 1) {
    mpi::Exchange exchange(endpoint, sequence);
    exchange.receive(1, 0, given_up.data(), bytes, pending);
  }
  MPI_Barrier(comm_);
  if (rank_ > 1 || size_ == 1) return;
  pending = 0;
  mpi::Exchange exchange(endpoint, sequence);
  if (rank_ == 0) exchange.receive(1, 0, received.data(), bytes, pending);
  if (rank_ == 1) exchange.send(0, 0, sent.data(), bytes, pending);
  while (pending > 0) exchange.step();
  EXPECT_EQ(received, rank_ == 0 ? sent : std::vector<std::byte>(bytes));
  EXPECT_EQ(given_up, std::vector<std::byte>(bytes));
}

}  // namespace
}  // namespace kolo::internal::backend
