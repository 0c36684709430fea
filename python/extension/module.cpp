// SPDX-License-Identifier: Apache-2.0
// The extension module: Kolo's C interface for the Python package.
#include "module.hpp"

#include "errors.hpp"

NB_MODULE(_core, module) {
  using namespace kolo_python;
  // Requests may be left to the end of the process.
  nb::set_leak_warnings(false);
  module.def("set_error_factory", &set_error_factory, nb::arg("factory"));
  module.attr("AVERAGE") = static_cast<int>(KOLO_AVERAGE);
  module.attr("SUM") = static_cast<int>(KOLO_SUM);
  module.attr("MIN") = static_cast<int>(KOLO_MIN);
  module.attr("MAX") = static_cast<int>(KOLO_MAX);
  module.attr("PRODUCT") = static_cast<int>(KOLO_PRODUCT);
  module.attr("ADASUM") = static_cast<int>(KOLO_ADASUM);
  module.attr("COMPRESSION_NONE") = static_cast<int>(KOLO_COMPRESSION_NONE);
  module.attr("COMPRESSION_FP16") = static_cast<int>(KOLO_COMPRESSION_FP16);
  module.attr("COMPRESSION_BF16") = static_cast<int>(KOLO_COMPRESSION_BF16);
  add_session(module);
  add_process_sets(module);
  add_collectives(module);
  add_parameters(module);
}
