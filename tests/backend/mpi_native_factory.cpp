// The backend under test is MPI's own allreduce, and Kolo's over MPI for what it has none for.
#include "backend/mpi/mpi_backend.hpp"
#include "backend/mpi/native_backend.hpp"
#include "fixture.hpp"

namespace kolo::backend {
namespace {

class Both : public Backend {
 public:
  Both(MPI_Comm comm, std::int64_t piece_bytes) : other_(comm, piece_bytes) {
    MPI_Comm_dup(comm, &own_);
    MPI_Comm_set_errhandler(own_, MPI_ERRORS_RETURN);
    native_ = std::make_unique<MpiNativeBackend>(own_, piece_bytes);
  }
  ~Both() override { MPI_Comm_free(&own_); }
  Both(const Both&) = delete;
  Both& operator=(const Both&) = delete;

  [[nodiscard]] std::unique_ptr<Execution> start(Batch batch) override {
    return native_->can_execute(batch) ? native_->start(std::move(batch))
                                       : other_.start(std::move(batch));
  }

 private:
  MPI_Comm own_ = MPI_COMM_NULL;
  std::unique_ptr<MpiNativeBackend> native_;
  MpiBackend other_;
};

}  // namespace

std::unique_ptr<Backend> make_backend(MPI_Comm comm, std::int64_t piece_bytes) {
  return std::make_unique<Both>(comm, piece_bytes);
}

std::int64_t default_piece_bytes() { return MpiNativeBackend::default_piece_bytes; }
std::int64_t large_piece_bytes() { return std::int64_t{1} << 30; }

}  // namespace kolo::backend
