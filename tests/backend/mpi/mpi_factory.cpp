// SPDX-License-Identifier: Apache-2.0
// The backend under test is MPI's. With KOLO_TEST_FAR, every second rank has a clock that makes
// messages seem slow, so that many pieces are in flight.
#include <chrono>
#include <cmath>

#include "../fixture.hpp"
#include "backend/mpi/mpi_backend.hpp"
#include "counting_messenger.hpp"
#include "messenger/mpi_messenger.hpp"

namespace kolo::internal::backend {

namespace {

/// A clock that advances a lot with each call of `now`, but less and less. So no piece takes much
/// longer than the pieces before it.
class FarMessenger : public CountingMessenger {
 public:
  using CountingMessenger::CountingMessenger;

  [[nodiscard]] TimePoint now() const override {
    const std::chrono::duration<double> time(10 * std::log(++looks_));
    return TimePoint(std::chrono::duration_cast<TimePoint::duration>(time));
  }

 private:
  mutable double looks_ = 0;
};

/// The backend and its messenger.
class BackendOverMpi : public Backend {
 public:
  BackendOverMpi(MPI_Comm comm, std::int64_t piece_bytes)
      : messenger_(comm),
        backend_(KOLO_TEST_FAR != 0 && messenger_.rank() % 2 == 0
                     ? static_cast<messenger::Messenger&>(far_)
                     : messenger_,
                 piece_bytes) {}

  [[nodiscard]] std::unique_ptr<Execution> start(Batch batch) override {
    return backend_.start(std::move(batch));
  }
  [[nodiscard]] std::uint64_t sequence_span() const override { return backend_.sequence_span(); }

 private:
  messenger::MpiMessenger messenger_;
  FarMessenger far_{messenger_};
  MpiBackend backend_;
};

}  // namespace

std::vector<std::string> variants(int /*ranks*/) { return {""}; }

std::unique_ptr<Backend> make_backend(MPI_Comm comm, std::int64_t piece_bytes,
                                      std::size_t /*variant*/) {
  return std::make_unique<BackendOverMpi>(comm, piece_bytes);
}

std::int64_t default_piece_bytes() { return MpiBackend::default_piece_bytes; }
std::int64_t large_piece_bytes() { return std::int64_t{1} << 30; }

}  // namespace kolo::internal::backend
