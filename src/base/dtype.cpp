#include "base/dtype.hpp"

namespace kolo {

bool is_floating(DType dtype) {
  return is_half(dtype) || dtype == DType::f32 || dtype == DType::f64;
}

bool is_half(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }

}  // namespace kolo
