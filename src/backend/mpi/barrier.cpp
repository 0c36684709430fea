#include "backend/mpi/executions.hpp"

namespace kolo::backend::mpi {
namespace {

class Barrier : public Execution {
 public:
  explicit Barrier(Context& context) : context_(context), turn_(context) {}

  Progress step() override {
    if (turn_.has_come()) {
      node::check_mpi(MPI_Ibarrier(context_.comm, &request_), "MPI_Ibarrier");
      turn_.pass_on();
    }
    return turn_.is_over() && test(request_) ? Progress::done : Progress::waiting;
  }

 private:
  Context& context_;
  Turn turn_;
  MPI_Request request_ = MPI_REQUEST_NULL;
};

}  // namespace

std::unique_ptr<Execution> make_barrier(Context& context) {
  return std::make_unique<Barrier>(context);
}

}  // namespace kolo::backend::mpi
