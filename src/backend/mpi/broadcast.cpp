#include <algorithm>
#include <utility>

#include "backend/mpi/executions.hpp"
#include "backend/mpi/pipeline.hpp"
#include "base/dtype.hpp"

namespace kolo::backend::mpi {
namespace {

class Broadcast : public Pipeline {
 public:
  Broadcast(Context& context, Batch batch)
      : Pipeline(context, std::move(batch.members), size_of(batch.kind.dtype),
                 size_of(batch.kind.dtype)),
        element_bytes_(size_of(batch.kind.dtype)),
        root_(batch.kind.root) {}

 private:
  void prepare(Piece& piece) override {
    if (moves_in_place(piece)) return;
    take_buffer(piece);
    if (root_ != context().rank) return;
    std::byte* to = piece.buffer.get();
    for (const Part& part : piece.parts) to = std::copy_n(part.data, bytes_of(part), to);
  }

  void call(Piece& piece) override {
    std::byte* data = moves_in_place(piece) ? piece.parts.front().data : piece.buffer.get();
    const auto bytes = static_cast<std::size_t>(piece.elements) * element_bytes_;
    node::check_mpi(
        MPI_Ibcast(data, static_cast<int>(bytes), MPI_BYTE, root_, context().comm, &piece.request),
        "MPI_Ibcast");
  }

  void finish(Piece& piece) override {
    if (moves_in_place(piece) || root_ == context().rank) return;
    const std::byte* from = piece.buffer.get();
    for (const Part& part : piece.parts) {
      std::copy_n(from, bytes_of(part), part.data);
      from += bytes_of(part);
    }
  }

  [[nodiscard]] static bool moves_in_place(const Piece& piece) { return piece.parts.size() == 1; }
  [[nodiscard]] std::size_t bytes_of(const Part& part) const {
    return static_cast<std::size_t>(part.elements) * element_bytes_;
  }

  std::size_t element_bytes_;
  int root_;
};

}  // namespace

std::unique_ptr<Execution> make_broadcast(Context& context, Batch batch) {
  return std::make_unique<Broadcast>(context, std::move(batch));
}

}  // namespace kolo::backend::mpi
