// SPDX-License-Identifier: Apache-2.0
#include "request.hpp"

#include <algorithm>
#include <cstdlib>

namespace kolo_python {
namespace {

/// How long a signal may wait for its handler.
constexpr double max_wait_s = 0.1;

/// Never destroyed: at the end of the process their arrays are no objects any more. Only used with
/// the GIL.
std::vector<std::unique_ptr<Operation>>& dropped_operations() {
  static auto& operations = *new std::vector<std::unique_ptr<Operation>>;
  return operations;
}

}  // namespace

Output::~Output() { std::free(memory); }

Operation::~Operation() {
  if (handle != nullptr) kolo_request_free(handle);
}

bool Operation::is_finished() const {
  int finished = 1;
  return handle == nullptr || kolo_request_finished(handle, &finished) != KOLO_OK || finished != 0;
}

void Operation::expect_rows(std::size_t members) {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    std::vector<std::int64_t> row = inputs[i].shape();
    if (!row.empty()) row.erase(row.begin());
    outputs.emplace_back(inputs[i].dtype(), std::move(row));
  }
  rows.resize(inputs.size() * members);
}

Request::~Request() {
  if (operation_ == nullptr || operation_->is_finished()) return;
  dropped_operations().push_back(std::move(operation_));
}

void Request::wait() {
  while (!wait_for(max_wait_s)) {
  }
}

bool Request::wait_for(double seconds) {
  int done = 0;
  for (;;) {
    const double slice = std::min(seconds, max_wait_s);
    without_gil([&] { return kolo_request_wait_for(operation_->handle, slice, &done); });
    if (done != 0) return true;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    seconds -= slice;
    if (!(seconds > 0.0)) return false;
  }
}

bool Request::ready() const {
  int ready = 0;
  check(kolo_request_ready(operation_->handle, &ready));
  return ready != 0;
}

nb::list Request::take_outputs() {
  nb::list arrays;
  const std::size_t count = operation_->outputs.size();
  const std::size_t members = count == 0 ? 0 : operation_->rows.size() / count;
  for (std::size_t i = 0; i < count; ++i) {
    Output output = std::move(operation_->outputs[i]);
    std::size_t rows = 0;
    for (std::size_t k = 0; k < members; ++k)
      rows += static_cast<std::size_t>(operation_->rows[i * members + k]);
    std::vector<std::size_t> shape{rows};
    for (const std::int64_t length : output.row) shape.push_back(static_cast<std::size_t>(length));
    if (output.memory == nullptr) output.memory = std::malloc(1);  // a result without elements
    void* const memory = std::exchange(output.memory, nullptr);
    const nb::capsule owner(memory, [](void* pointer) noexcept { std::free(pointer); });
    arrays.append(nb::cast(nb::ndarray<nb::array_api>(memory, shape.size(), shape.data(), owner,
                                                      nullptr, output.dtype)));
  }
  return arrays;
}

void free_dropped_operations() {
  auto& operations = dropped_operations();
  if (operations.empty()) return;
  std::erase_if(operations, [](const auto& operation) { return operation->is_finished(); });
}

}  // namespace kolo_python
