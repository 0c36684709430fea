// SPDX-License-Identifier: Apache-2.0
// The fixture of the tests of all backends. The factory file that is linked selects the backend.
#pragma once

#include <gtest/gtest.h>
#include <mpi.h>

#include <cstdint>
#include <memory>
#include <numeric>
#include <thread>
#include <utility>

#include "backend/backend.hpp"
#include "tensors.hpp"

namespace kolo::internal::backend {

/// Creates a backend. Collective over `comm`, which must outlive the backend.
[[nodiscard]] std::unique_ptr<Backend> make_backend(MPI_Comm comm, std::int64_t piece_bytes);
[[nodiscard]] std::int64_t default_piece_bytes();
/// A piece size larger than any tensor of these tests.
[[nodiscard]] std::int64_t large_piece_bytes();

class BackendTest : public testing::Test {
 protected:
  // Small pieces, so that a thousand elements take many pieces.
  static constexpr std::int64_t piece_bytes = 256;

  BackendTest() {
    MPI_Comm_dup(MPI_COMM_WORLD, &comm_);
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
    MPI_Comm_rank(comm_, &rank_);
    MPI_Comm_size(comm_, &size_);
    backend_ = make_backend(comm_, piece_bytes);
  }
  ~BackendTest() override {
    backend_.reset();
    MPI_Comm_free(&comm_);
  }

  /// A batch without tensors, among all ranks. Every rank must call this equally often.
  [[nodiscard]] Batch batch_of(Descriptor kind) {
    Batch batch;
    batch.kind = std::move(kind);
    batch.set.resize(static_cast<std::size_t>(size_));
    std::iota(batch.set.begin(), batch.set.end(), 0);
    batch.ranks = batch.set;
    batch.divisor = size_;
    batch.sequence = sequence_++;
    return batch;
  }

  template <typename T>
  [[nodiscard]] Batch batch_of(Descriptor kind, const Tensors<T>& tensors) {
    Batch batch = batch_of(std::move(kind));
    tensors.add_to(batch);
    return batch;
  }

  static void finish(Execution& execution) {
    for (;;) {
      const Progress progress = execution.step();
      if (progress == Progress::done) return;
      if (progress == Progress::waiting) std::this_thread::yield();
    }
  }
  void run(Batch batch) { finish(*backend_->start(std::move(batch))); }

  /// Replaces the backend. Collective.
  void start_anew(std::int64_t bytes) { backend_ = make_backend(comm_, bytes); }

  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 0;
  std::unique_ptr<Backend> backend_;

 private:
  std::uint64_t sequence_ = 4090;  // near the end of the tags
};

}  // namespace kolo::internal::backend
