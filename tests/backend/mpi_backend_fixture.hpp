// What the tests of the MPI backend share.
#pragma once

#include <gtest/gtest.h>
#include <mpi.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/mpi/mpi_backend.hpp"
#include "base/dtype.hpp"
#include "base/half.hpp"

namespace kolo::backend {

/// The numbers of elements of a batch's tensors.
using Lengths = std::vector<std::size_t>;

class MpiBackendTest : public testing::Test {
 protected:
  // Small pieces, so that a thousand elements take many.
  static constexpr std::int64_t piece_bytes = 256;

  MpiBackendTest() {
    MPI_Comm_dup(MPI_COMM_WORLD, &comm_);
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
    MPI_Comm_rank(comm_, &rank_);
    MPI_Comm_size(comm_, &size_);
    backend_ = std::make_unique<MpiBackend>(comm_, piece_bytes);
  }
  ~MpiBackendTest() override {
    backend_.reset();
    MPI_Comm_free(&comm_);
  }

  static void finish(Execution& execution) {
    while (execution.step() != Progress::done) {
    }
  }
  void run(Batch batch) { finish(*backend_->start(std::move(batch))); }

  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 0;
  std::unique_ptr<MpiBackend> backend_;
};

inline Descriptor allreduce_of(DType dtype, ReduceOp op) {
  Descriptor kind;
  kind.type = OperationType::allreduce;
  kind.dtype = dtype;
  kind.op = op;
  return kind;
}

inline Descriptor broadcast_of(DType dtype, int root) {
  Descriptor kind;
  kind.type = OperationType::broadcast;
  kind.dtype = dtype;
  kind.root = root;
  return kind;
}

/// One tensor.
template <typename T>
Batch batch_of(Descriptor kind, T* data, std::size_t elements) {
  Batch batch;
  batch.kind = std::move(kind);
  batch.members.push_back({data, static_cast<std::int64_t>(elements), nullptr});
  return batch;
}

inline Batch text_from(int root, std::string& text) {
  Batch batch;
  batch.kind.type = OperationType::broadcast_text;
  batch.kind.root = root;
  batch.members.push_back({nullptr, 0, &text});
  return batch;
}

template <typename T>
constexpr DType dtype() {
  if constexpr (std::is_same_v<T, F16>) {
    return DType::f16;
  } else if constexpr (std::is_same_v<T, BF16>) {
    return DType::bf16;
  } else {
    return dtype_of<T>;
  }
}

template <typename T>
T make(std::int64_t value) {
  if constexpr (std::is_same_v<T, F16>) {
    return to_f16(static_cast<float>(value));
  } else if constexpr (std::is_same_v<T, BF16>) {
    return to_bf16(static_cast<float>(value));
  } else {
    return static_cast<T>(value);
  }
}

/// A number for messages and comparisons; the bits of the half types.
template <typename T>
auto printable(T element) {
  if constexpr (std::is_same_v<T, F16> || std::is_same_v<T, BF16>) {
    return to_float(element);
  } else {
    return element;
  }
}

/// The tensors of one batch: `tensors[i]` has `lengths[i]` elements, given by `value(i, index)`.
template <typename T, typename Function>
std::vector<std::unique_ptr<T[]>> make_tensors(const Lengths& lengths, Function value) {
  std::vector<std::unique_ptr<T[]>> tensors;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    tensors.push_back(std::make_unique<T[]>(lengths[i]));
    for (std::size_t k = 0; k < lengths[i]; ++k) tensors[i][k] = value(i, k);
  }
  return tensors;
}

template <typename T>
Batch make_batch(Descriptor kind, const std::vector<std::unique_ptr<T[]>>& tensors,
                 const Lengths& lengths) {
  Batch batch;
  batch.kind = std::move(kind);
  for (std::size_t i = 0; i < lengths.size(); ++i)
    batch.members.push_back({tensors[i].get(), static_cast<std::int64_t>(lengths[i]), nullptr});
  return batch;
}

/// How many elements differ from `value(i, index)`, with the first such place in a message.
template <typename T, typename Function>
testing::AssertionResult all_equal(const std::vector<std::unique_ptr<T[]>>& tensors,
                                   const Lengths& lengths, Function value) {
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    for (std::size_t k = 0; k < lengths[i]; ++k) {
      const auto found = printable(tensors[i][k]);
      const auto expected = printable(T(value(i, k)));
      if (found != expected)
        return testing::AssertionFailure() << "element " << k << " of tensor " << i << " is "
                                           << +found << ", not " << +expected;
    }
  }
  return testing::AssertionSuccess();
}

}  // namespace kolo::backend
