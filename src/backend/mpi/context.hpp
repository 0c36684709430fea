// What the executions of one MPI backend share.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "backend/mpi/sum.hpp"
#include "node/mpi_error.hpp"

namespace kolo::backend::mpi {

/// Buffers of one size, kept for the next batch.
class BufferPool {
 public:
  using Buffer = std::unique_ptr<std::byte[]>;

  [[nodiscard]] Buffer take(std::size_t bytes) {
    if (free_.empty()) return std::make_unique_for_overwrite<std::byte[]>(bytes);
    Buffer buffer = std::move(free_.back());
    free_.pop_back();
    return buffer;
  }
  void give_back(Buffer buffer) { free_.push_back(std::move(buffer)); }

 private:
  std::vector<Buffer> free_;
};

struct Context {
  MPI_Comm comm = MPI_COMM_NULL;
  int rank = 0;
  int size = 1;
  std::int64_t piece_bytes = 0;  // a multiple of 8
  Sums sums{};
  BufferPool buffers{};
  // MPI matches collectives by the order of their calls, and batches get ready for theirs at
  // different times on different ranks: so each batch takes a number when it is started, and calls
  // when those before it have made all their calls.
  std::uint64_t next_number = 0;
  std::uint64_t calling = 0;
};

/// A batch's place in the order of calls.
class Turn {
 public:
  explicit Turn(Context& context) : context_(context), number_(context.next_number++) {}

  [[nodiscard]] bool has_come() const { return context_.calling == number_; }
  [[nodiscard]] bool is_over() const { return context_.calling > number_; }
  /// Every call of this batch was made.
  void pass_on() { ++context_.calling; }

 private:
  Context& context_;
  std::uint64_t number_;
};

/// True once MPI is done with the request.
inline bool test(MPI_Request& request) {
  int done = 0;
  node::check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
  return done != 0;
}

}  // namespace kolo::backend::mpi
