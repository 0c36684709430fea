#include "base/format.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace kolo {

std::string to_string(const Shape& shape) {
  return fmt::format("[{}]", fmt::join(shape.lengths(), ", "));
}

std::string_view to_string(DType dtype) {
  switch (dtype) {
    case DType::u8: return "u8";
    case DType::i8: return "i8";
    case DType::u16: return "u16";
    case DType::i16: return "i16";
    case DType::u32: return "u32";
    case DType::i32: return "i32";
    case DType::u64: return "u64";
    case DType::i64: return "i64";
    case DType::f16: return "f16";
    case DType::bf16: return "bf16";
    case DType::f32: return "f32";
    case DType::f64: return "f64";
    case DType::boolean: return "bool";
  }
  return "unknown dtype";
}

std::string_view to_string(OperationType type) {
  switch (type) {
    case OperationType::allreduce: return "allreduce";
    case OperationType::broadcast: return "broadcast";
    case OperationType::broadcast_text: return "text broadcast";
    case OperationType::barrier: return "barrier";
  }
  return "unknown operation";
}

std::string_view to_string(ReduceOp op) {
  switch (op) {
    case ReduceOp::average: return "average";
    case ReduceOp::sum: return "sum";
  }
  return "unknown reduction";
}

std::string to_string(Device device) {
  return device.type == DeviceType::cpu ? "cpu" : fmt::format("cuda:{}", device.index);
}

std::string to_string(const Descriptor& descriptor) {
  std::string text(to_string(descriptor.type));
  const bool has_tensor =
      descriptor.type == OperationType::allreduce || descriptor.type == OperationType::broadcast;
  if (descriptor.type == OperationType::allreduce)
    text += fmt::format(" {}", to_string(descriptor.op));
  if (has_tensor)
    text += fmt::format(" {} {}", to_string(descriptor.dtype), to_string(descriptor.shape));
  if (descriptor.root != -1) text += fmt::format(" from rank {}", descriptor.root);
  if (descriptor.device != Device{}) text += fmt::format(" on {}", to_string(descriptor.device));
  if (descriptor.prescale != 1.0) text += fmt::format(", prescale {}", descriptor.prescale);
  if (descriptor.postscale != 1.0) text += fmt::format(", postscale {}", descriptor.postscale);
  if (descriptor.step != 0) text += fmt::format(", step {}", descriptor.step);
  return text;
}

}  // namespace kolo
