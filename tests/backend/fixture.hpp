// SPDX-License-Identifier: Apache-2.0
// The fixture of the tests of all backends. The factory file that is linked selects the backend.
#pragma once

#include <gtest/gtest.h>
#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backend/backend.hpp"
#include "tensors.hpp"

namespace kolo::internal::backend {

/// The names of the ways to set up the backend, such as layouts of the ranks on hosts. Most
/// backends have one.
[[nodiscard]] std::vector<std::string> variants(int ranks);
/// Collective over `comm`, which outlives the backend. `variant` is an index into `variants`.
[[nodiscard]] std::unique_ptr<Backend> make_backend(MPI_Comm comm, std::int64_t piece_bytes,
                                                    std::size_t variant = 0);
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

  /// Replaces the backend, on all ranks at once.
  void start_anew(std::int64_t bytes, std::size_t variant = 0) {
    backend_ = make_backend(comm_, bytes, variant);
  }

  /// Calls `test()` with a new backend of each variant.
  template <typename Test>
  void on_every_variant(Test test, std::int64_t bytes = piece_bytes) {
    const std::vector<std::string> names = variants(size_);
    for (std::size_t variant = 0; variant < names.size(); ++variant) {
      SCOPED_TRACE(names[variant]);
      start_anew(bytes, variant);
      test();
    }
  }

  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 0;
  std::unique_ptr<Backend> backend_;

 private:
  std::uint64_t sequence_ = 4090;  // near the end of the tags
};

}  // namespace kolo::internal::backend
