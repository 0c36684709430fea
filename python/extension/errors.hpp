// SPDX-License-Identifier: Apache-2.0
// Statuses of the C interface become Python exceptions.
#pragma once

#include <nanobind/nanobind.h>

#include <utility>

#include "kolo/c/kolo.h"

namespace kolo_python {

namespace nb = nanobind;

/// Sets the function of the package that makes an exception from the name of a status, the message,
/// the tensor, and the ranks.
void set_error_factory(const nb::object& factory);

/// Raises the last error of this thread.
[[noreturn]] void raise_last_error(kolo_status status);

/// Calls a function of the C interface that does not block.
inline void check(kolo_status status) {
  if (status != KOLO_OK) raise_last_error(status);
}

/// Calls a function of the C interface while other Python threads run. The last error belongs to
/// this thread, so that they cannot replace it.
template <typename Call>
void without_gil(Call&& call) {
  kolo_status status = KOLO_OK;
  {
    const nb::gil_scoped_release release;
    status = std::forward<Call>(call)();
  }
  check(status);
}

}  // namespace kolo_python
