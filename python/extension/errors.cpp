// SPDX-License-Identifier: Apache-2.0
#include "errors.hpp"

#include <cstddef>
#include <cstring>

namespace kolo_python {
namespace {

/// Never freed: the interpreter may end before the objects of this library.
PyObject* error_factory = nullptr;

/// A name may have any bytes.
nb::object text_of(const char* text) {
  return nb::steal(
      PyUnicode_DecodeUTF8(text, static_cast<Py_ssize_t>(std::strlen(text)), "replace"));
}

}  // namespace

void set_error_factory(const nb::object& factory) {
  Py_XDECREF(error_factory);
  error_factory = nb::object(factory).release().ptr();
}

void raise_last_error(kolo_status status) {
  const int* ranks = nullptr;
  const std::size_t count = kolo_last_error_ranks(&ranks);
  nb::list list;
  for (std::size_t i = 0; i < count; ++i) list.append(ranks[i]);
  const nb::object error =
      nb::handle(error_factory)(kolo_status_name(status), text_of(kolo_last_error_message()),
                                text_of(kolo_last_error_tensor()), list);
  PyErr_SetObject(error.type().ptr(), error.ptr());
  throw nb::python_error();
}

}  // namespace kolo_python
