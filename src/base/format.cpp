#include "base/format.hpp"

#include <fmt/format.h>

namespace kolo {

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (const std::int64_t length : shape.lengths()) {
    if (text.size() > 1) text += ", ";
    text += length == any_length ? "*" : std::to_string(length);
  }
  return text + ']';
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
    case OperationType::reducescatter: return "reducescatter";
    case OperationType::allgather: return "allgather";
    case OperationType::alltoall: return "alltoall";
    case OperationType::broadcast: return "broadcast";
    case OperationType::broadcast_text: return "text broadcast";
    case OperationType::barrier: return "barrier";
    case OperationType::join: return "join";
    case OperationType::add_process_set: return "add_process_set";
    case OperationType::remove_process_set: return "remove_process_set";
  }
  return "unknown operation";
}

std::string_view to_string(ReduceOp op) {
  switch (op) {
    case ReduceOp::average: return "average";
    case ReduceOp::sum: return "sum";
    case ReduceOp::min: return "min";
    case ReduceOp::max: return "max";
    case ReduceOp::product: return "product";
    case ReduceOp::adasum: return "adasum";
  }
  return "unknown reduction";
}

std::string_view to_string(Compression compression) {
  switch (compression) {
    case Compression::none: return "none";
    case Compression::fp16: return "fp16";
    case Compression::bf16: return "bf16";
  }
  return "unknown compression";
}

std::string_view to_string(AverageOver over) {
  switch (over) {
    case AverageOver::all: return "all";
    case AverageOver::present: return "present";
  }
  return "unknown divisor";
}

std::string to_string(Device device) {
  if (device.type == DeviceType::cpu) return "cpu";
  return device.index < 0 ? "cuda" : fmt::format("cuda:{}", device.index);
}

std::string to_string(const Descriptor& descriptor) {
  std::string text(to_string(descriptor.type));
  const bool reduces = descriptor.type == OperationType::allreduce ||
                       descriptor.type == OperationType::reducescatter;
  if (reduces) text += fmt::format(" {}", to_string(descriptor.op));
  const char* separator = " ";
  for (const TensorSpec& tensor : descriptor.tensors) {
    text += fmt::format("{}{} {}", separator, to_string(tensor.dtype), to_string(tensor.shape));
    separator = ", ";
  }
  if (descriptor.root != -1) text += fmt::format(" from rank {}", descriptor.root);
  if (descriptor.device != Device{}) text += fmt::format(" on {}", to_string(descriptor.device));
  if (descriptor.prescale != 1.0) text += fmt::format(", prescale {}", descriptor.prescale);
  if (descriptor.postscale != 1.0) text += fmt::format(", postscale {}", descriptor.postscale);
  if (descriptor.compression != Compression::none)
    text += fmt::format(", compressed to {}", to_string(descriptor.compression));
  if (descriptor.step != 0) text += fmt::format(", step {}", descriptor.step);
  if (!descriptor.ranks.empty()) text += fmt::format(" of ranks {}", to_string(descriptor.ranks));
  return text;
}

}  // namespace kolo
