// SPDX-License-Identifier: Apache-2.0
// Asynchronous operations, and the memory that they use.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "array.hpp"
#include "errors.hpp"
#include "kolo/c/kolo.h"

namespace kolo_python {

/// A result whose size depends on all ranks, in memory of malloc.
struct Output {
  void* memory = nullptr;
  nb::dlpack::dtype dtype;
  std::vector<std::int64_t> row;  ///< the shape of one row

  Output(nb::dlpack::dtype its_dtype, std::vector<std::int64_t> its_row)
      : dtype(its_dtype), row(std::move(its_row)) {}
  Output(Output&& other) noexcept
      : memory(std::exchange(other.memory, nullptr)),
        dtype(other.dtype),
        row(std::move(other.row)) {}
  Output& operator=(Output&&) = delete;
  ~Output();
};

/// Everything that an operation uses until it is done.
struct Operation {
  Arrays inputs;
  Arrays results;
  std::vector<Output> outputs;
  std::vector<std::int64_t> rows;  ///< of each output and member, if there are outputs
  int last_rank = -1;
  kolo_request* handle = nullptr;

  Operation() = default;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  /// Waits, unless `is_finished()`.
  ~Operation();
  [[nodiscard]] bool is_finished() const;
  /// Room for the rows of each input from each member.
  void expect_rows(std::size_t members);
};

/// An operation, as Python holds it. If it is dropped before the operation is done, the operation
/// continues, and keeps its memory.
class Request {
 public:
  explicit Request(std::unique_ptr<Operation> operation) : operation_(std::move(operation)) {}
  Request(Request&&) = default;
  Request& operator=(Request&&) = delete;
  ~Request();

  /// Waits without the GIL. Signals are handled meanwhile, so that Ctrl-C raises KeyboardInterrupt;
  /// the operation continues then.
  void wait();
  /// Waits at most so long; true if the operation is done.
  bool wait_for(double seconds);
  [[nodiscard]] bool ready() const;
  /// The outputs as arrays, once.
  nb::list take_outputs();
  [[nodiscard]] const std::vector<std::int64_t>& rows() const { return operation_->rows; }
  [[nodiscard]] int last_rank() const { return operation_->last_rank; }

 private:
  std::unique_ptr<Operation> operation_;
};

/// Frees operations whose requests were dropped, and which are done meanwhile.
void free_dropped_operations();

/// Submits an operation: `call` gets the place of its handle.
template <typename Call>
Request submit(std::unique_ptr<Operation> operation, Call&& call) {
  free_dropped_operations();
  without_gil([&] { return call(&operation->handle); });
  return Request(std::move(operation));
}

}  // namespace kolo_python
