// Moves a batch through the network piece by piece.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "backend/backend.hpp"
#include "backend/mpi/context.hpp"

namespace kolo::backend::mpi {

/// Elements that follow each other in one member.
struct Part {
  std::byte* data;  // in the member's memory
  std::int64_t elements;
};

/// A range of the batch's members laid end to end.
struct Piece {
  std::vector<Part> parts;
  std::int64_t elements = 0;
  BufferPool::Buffer buffer;  // of twice `piece_bytes`; null if not needed
  MPI_Request request = MPI_REQUEST_NULL;
};

/// The common part of allreduce and broadcast: cuts the batch, keeps a few pieces under way, and
/// makes their calls in the same order on every rank.
class Pipeline : public Execution {
 public:
  /// `element_bytes` in the member's memory, `wire_bytes` of an element on the network.
  Pipeline(Context& context, std::vector<Member> members, std::size_t element_bytes,
           std::size_t wire_bytes);
  /// Buffers that MPI may yet write are leaked on purpose.
  ~Pipeline() override;
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  [[nodiscard]] Progress step() final;

 protected:
  [[nodiscard]] const Context& context() const { return context_; }
  /// The second half of a piece's buffer.
  [[nodiscard]] std::byte* second_half(const Piece& piece) const {
    return piece.buffer.get() + context_.piece_bytes;
  }
  void take_buffer(Piece& piece) const;

 private:
  /// Gets the piece ready for its call: takes a buffer if it needs one, and packs.
  virtual void prepare(Piece& piece) = 0;
  /// Makes the call.
  virtual void call(Piece& piece) = 0;
  /// The request is complete: unpacks.
  virtual void finish(Piece& piece) = 0;

  Piece next_piece();

  Context& context_;
  Turn turn_;
  std::vector<Member> members_;
  std::size_t element_bytes_;
  std::int64_t piece_elements_;
  // Where the next piece begins.
  std::size_t member_ = 0;
  std::int64_t offset_ = 0;
  bool prepared_ = false;  // `next_` waits for this batch's turn
  Piece next_;
  std::deque<Piece> under_way_;  // in the order of their calls
};

}  // namespace kolo::backend::mpi
