// SPDX-License-Identifier: Apache-2.0
#include "array.hpp"

#include <array>
#include <optional>
#include <string>
#include <utility>

namespace kolo_python {
namespace {

/// The name of the object's type.
std::string type_of(const nb::object& object) {
  return nb::cast<std::string>(nb::str(object.type().attr("__name__")));
}

// The codes of DLPack.
constexpr int dl_int = 0, dl_unsigned = 1, dl_float = 2, dl_bfloat = 4, dl_bool = 6;

std::optional<kolo_dtype> dtype_of(nb::dlpack::dtype type) {
  struct Known {
    int code;
    int bits;
    kolo_dtype dtype;
  };
  constexpr std::array known{Known{dl_unsigned, 8, KOLO_U8},   Known{dl_int, 8, KOLO_I8},
                             Known{dl_unsigned, 16, KOLO_U16}, Known{dl_int, 16, KOLO_I16},
                             Known{dl_unsigned, 32, KOLO_U32}, Known{dl_int, 32, KOLO_I32},
                             Known{dl_unsigned, 64, KOLO_U64}, Known{dl_int, 64, KOLO_I64},
                             Known{dl_float, 16, KOLO_F16},    Known{dl_bfloat, 16, KOLO_BF16},
                             Known{dl_float, 32, KOLO_F32},    Known{dl_float, 64, KOLO_F64},
                             Known{dl_bool, 8, KOLO_BOOL}};
  for (const Known& entry : known)
    if (entry.code == static_cast<int>(type.code) && entry.bits == type.bits && type.lanes == 1)
      return entry.dtype;
  return std::nullopt;
}

/// Row-major, without gaps.
bool is_contiguous(const nb::ndarray<nb::ro>& array) {
  if (array.size() == 0) return true;
  std::int64_t expected = 1;
  for (std::size_t i = array.ndim(); i-- > 0;) {
    if (array.shape(i) != 1 && array.stride(i) != expected) return false;
    expected *= static_cast<std::int64_t>(array.shape(i));
  }
  return true;
}

/// Views the object. Nothing is converted.
nb::ndarray<nb::ro> view(const nb::object& object, Access access) {
  nb::ndarray<nb::ro> any;
  if (!nb::try_cast(object, any, false)) {
    PyErr_Clear();
    throw nb::type_error(("a tensor must be an array that supports DLPack or the buffer protocol, "
                          "of numbers in native byte order, not " +
                          type_of(object))
                             .c_str());
  }
  nb::ndarray<> writable;
  if (access == Access::write && !nb::try_cast(object, writable, false)) {
    PyErr_Clear();
    throw nb::value_error(("this " + type_of(object) + " is read-only").c_str());
  }
  return any;
}

}  // namespace

Array::Array(const nb::object& object, Access access) : kept_(view(object, access)) {
  if (kept_.device_type() != nb::device::cpu::value)
    throw nb::value_error("tensors must be in the memory of the host: copy them with .cpu()");
  if (!is_contiguous(kept_))
    throw nb::value_error(
        "a tensor must be contiguous: use numpy.ascontiguousarray or .contiguous()");
  const std::optional<kolo_dtype> dtype = dtype_of(kept_.dtype());
  if (!dtype) throw nb::type_error("this element type is not supported: see docs/python.md");
  // Memory of a read-only array is only read: its functions say so with Access::read.
  tensor_ = {const_cast<void*>(kept_.data()),
             *dtype,
             {KOLO_CPU, 0},
             static_cast<std::int32_t>(kept_.ndim()),
             kept_.shape_ptr()};
}

Arrays::Arrays(const nb::list& objects, Access access) {
  for (const nb::handle object : objects) add(nb::borrow(object), access);
}

}  // namespace kolo_python
