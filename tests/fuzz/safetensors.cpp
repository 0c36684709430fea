// SPDX-License-Identifier: Apache-2.0
// Safetensors files of other programs, in memory.
#include "kolo/training/safetensors.hpp"

#include <memory>

#include "base/dtype.hpp"
#include "kolo/error.hpp"
#include "memory_file.hpp"
#include "target.hpp"
#include "training/safetensors_index.hpp"
#include "training/safetensors_names.hpp"

namespace kolo::internal::fuzz {
namespace {

bool equal(const Safetensors& a, const Safetensors& b) {
  if (a.metadata != b.metadata || a.tensors.size() != b.tensors.size()) return false;
  for (const auto& [name, tensor] : a.tensors) {
    const auto other = b.tensors.find(name);
    if (other == b.tensors.end() || other->second.dtype != tensor.dtype ||
        other->second.shape != tensor.shape || other->second.bytes != tensor.bytes)
      return false;
  }
  return true;
}

bool run(Bytes bytes) {
  // Memory of its own size: AddressSanitizer sees each read beyond its end.
  const std::unique_ptr<char[]> exact(new char[bytes.size()]);
  std::copy(bytes.begin(), bytes.end(), exact.get());
  const std::string_view text(exact.get(), bytes.size());
  Safetensors first;
  try {
    first = from_safetensors(text);
  } catch (const InvalidArgument&) {
    return false;
  }
  ConstTensorViews views;
  for (const auto& [name, tensor] : first.tensors) {
    require(tensor.bytes.size() ==
                static_cast<std::size_t>(tensor.shape.elements()) * internal::size_of(tensor.dtype),
            "a tensor with more or fewer bytes than elements");
    views.emplace(name, tensor.view());
  }
  require(equal(from_safetensors(to_safetensors(views, first.metadata)), first),
          "tensors are others when they are written and read again");
  return true;
}

std::vector<Seed> seeds() {
  const std::vector<float> weight{1, 2, 3, 4};
  const std::vector<std::int64_t> steps{7};
  const ConstTensorViews tensors{{"0.weight", {weight.data(), Shape{2, 2}}},
                                 {"none", {weight.data(), Shape{0, 2}}},
                                 {"steps", steps},
                                 {"half", {weight.data(), Shape{3}, DType::bf16}}};
  return {{"empty", to_safetensors({})},
          {"metadata", to_safetensors({}, {{"format", "pt"}})},
          {"tensors", to_safetensors(tensors, {{"format", "pt"}})}};
}

bool run_index(Bytes bytes) {
  static MemoryFile file;
  file.set(bytes);
  try {
    const internal::SafetensorsIndex index = internal::read_index(file.path());
    for (const std::filesystem::path& one : index.files)
      require(one.parent_path() == file.path().parent_path(), "a file of another folder");
    require(index.files.size() <= index.file_of.size(), "a file without tensors");
    return true;
  } catch (const CheckpointError&) {
    return false;
  }
}

std::vector<Seed> index_seeds() {
  return {
      {"empty", R"({"weight_map":{}})"},
      {"set", R"({"metadata":{"total_size":24},"weight_map":{"a":"1.st","b":"2.st","c":"1.st"}})"}};
}

}  // namespace

const Target safetensors_target{
    .name = "safetensors", .max_bytes = 1024, .run = run, .seeds = seeds};
const Target safetensors_index_target{
    .name = "safetensors_index", .max_bytes = 512, .run = run_index, .seeds = index_seeds};

}  // namespace kolo::internal::fuzz
