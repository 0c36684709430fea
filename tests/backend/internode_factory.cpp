// SPDX-License-Identifier: Apache-2.0
// The backend under test is the inter-node one, among made-up hosts that consist of ranks of this
// host. Other batches take another backend, as in a session. KOLO_TEST_LAYOUT sets the layout.
#include "backend/mpi/mpi_backend.hpp"
#include "internode_fixture.hpp"

namespace kolo::internal::backend {
namespace {

NodeOf nodes(MPI_Comm comm) {
  int size = 0;
  MPI_Comm_size(comm, &size);
  return layouts.at(KOLO_TEST_LAYOUT).of(size);
}

class OnMadeUpHosts : public Backend {
 public:
  OnMadeUpHosts(MPI_Comm comm, std::int64_t piece_bytes)
      : hosts_(comm, nodes(comm), piece_bytes), over_mpi_(hosts_.messenger(), piece_bytes) {}

  [[nodiscard]] std::unique_ptr<Execution> start(Batch batch) override {
    if (hosts_.across().can_execute(batch)) return hosts_.across().start(std::move(batch));
    if (hosts_.inside().can_execute(batch)) return hosts_.inside().start(std::move(batch));
    return over_mpi_.start(std::move(batch));
  }
  [[nodiscard]] std::uint64_t sequence_span() const override { return over_mpi_.sequence_span(); }

 private:
  MadeUpHosts hosts_;
  MpiBackend over_mpi_;
};

}  // namespace

std::unique_ptr<Backend> make_backend(MPI_Comm comm, std::int64_t piece_bytes) {
  return std::make_unique<OnMadeUpHosts>(comm, piece_bytes);
}

std::int64_t default_piece_bytes() { return ShmBackend::default_piece_bytes; }
std::int64_t large_piece_bytes() { return std::int64_t{1} << 22; }

}  // namespace kolo::internal::backend
