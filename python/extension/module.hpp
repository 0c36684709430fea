// SPDX-License-Identifier: Apache-2.0
// The parts of the extension module.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>

#include "kolo/c/kolo.h"

namespace kolo_python {

namespace nb = nanobind;

/// Process sets are numbers in Python: their handles, which are no addresses; 0 is the world.
inline kolo_process_set* set_of(std::uint64_t number) {
  return reinterpret_cast<kolo_process_set*>(number);  // NOLINT(performance-no-int-to-ptr)
}

void add_session(nb::module_& module);
void add_process_sets(nb::module_& module);
void add_collectives(nb::module_& module);
void add_parameters(nb::module_& module);

}  // namespace kolo_python
