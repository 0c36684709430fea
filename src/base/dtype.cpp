#include "base/dtype.hpp"

namespace kolo {

std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::u8:
    case DType::i8:
    case DType::boolean: return 1;
    case DType::u16:
    case DType::i16:
    case DType::f16:
    case DType::bf16: return 2;
    case DType::u32:
    case DType::i32:
    case DType::f32: return 4;
    case DType::u64:
    case DType::i64:
    case DType::f64: return 8;
  }
  return 0;
}

bool is_floating(DType dtype) {
  return is_half(dtype) || dtype == DType::f32 || dtype == DType::f64;
}

bool is_half(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }

}  // namespace kolo
