// SPDX-License-Identifier: Apache-2.0
// Safetensors files of other programs, in memory.
#include "kolo/training/checkpoint.hpp"

#include <algorithm>
#include <memory>

#include "base/dtype.hpp"
#include "kolo/error.hpp"
#include "memory_file.hpp"
#include "target.hpp"
#include "training/safetensors/index_files.hpp"

namespace kolo::internal::fuzz {
namespace {

// Some of the names that seeds have.
struct Wanted {
  std::vector<float> weight = std::vector<float>(4, -1.0F);
  std::vector<std::int64_t> steps = std::vector<std::int64_t>(1, -1);

  TensorViews views() {
    return {{"0.weight", {weight.data(), Shape{2, 2}}}, {"steps", TensorView(steps)}};
  }
  friend bool operator==(const Wanted&, const Wanted&) = default;
};

std::string bytes_of(const TensorView& view) {
  return {static_cast<const char*>(view.data()),
          static_cast<std::size_t>(view.elements()) * internal::size_of(view.dtype())};
}

bool has(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// Tensors that are found get the elements of the file; nothing else changes.
void load_into(const MemoryFile& file, const StateDict& contents) {
  Wanted wanted;
  try {
    const UnmatchedNames unmatched =
        load_safetensors(file.path(), wanted.views(), {.strict = false});
    for (const auto& [name, view] : wanted.views()) {
      const bool missing = has(unmatched.missing, name);
      require(missing != contents.tensors.contains(name), "a tensor is found and missing");
      require(missing || contents.tensors.at(name).bytes == bytes_of(view),
              "a tensor has other elements than the file");
    }
  } catch (const InvalidArgument&) {
    require(wanted == Wanted(), "a file that was refused changed something");
  }
}

/// The reader of files accepts what the reader of bytes does.
bool run_file(Bytes bytes) {
  static MemoryFile file;
  file.set(bytes);
  StateDict contents;
  bool accepted = true;
  try {
    contents = load_safetensors(file.path());
  } catch (const CheckpointError&) {
    accepted = false;
  }
  try {
    const StateDict same = from_safetensors(as_text(bytes));
    require(accepted && contents == same, "bytes are read otherwise than from a file");
  } catch (const InvalidArgument&) {
    require(!accepted, "bytes are refused that are accepted from a file");
  }
  if (accepted) load_into(file, contents);
  return accepted;
}

bool run(Bytes bytes) {
  // Memory of its own size: AddressSanitizer sees each read beyond its end.
  const std::unique_ptr<char[]> exact(new char[bytes.size()]);
  std::copy(bytes.begin(), bytes.end(), exact.get());
  const std::string_view text(exact.get(), bytes.size());
  StateDict first;
  try {
    first = from_safetensors(text);
  } catch (const InvalidArgument&) {
    return false;
  }
  for (const auto& [name, tensor] : first.tensors)
    require(tensor.bytes.size() ==
                static_cast<std::size_t>(tensor.shape.elements()) * internal::size_of(tensor.dtype),
            "a tensor with more or fewer bytes than elements");
  require(from_safetensors(to_safetensors(first)) == first,
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
          {"metadata", to_safetensors(StateDict(ConstTensorViews{}, {{"format", "pt"}}))},
          {"tensors", to_safetensors(StateDict(tensors, {{"format", "pt"}}))}};
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
const Target safetensors_file_target{
    .name = "safetensors_file", .max_bytes = 1024, .run = run_file, .seeds = seeds};
const Target safetensors_index_target{
    .name = "safetensors_index", .max_bytes = 512, .run = run_index, .seeds = index_seeds};

}  // namespace kolo::internal::fuzz
