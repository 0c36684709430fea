// SPDX-License-Identifier: Apache-2.0
// The state of an object as tensors by name, which checkpoints and elastic commits hold.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "kolo/export.hpp"
#include "kolo/tensor.hpp"

namespace kolo {

/// A tensor that owns its elements: row-major, without gaps, little-endian.
struct StoredTensor {
  DType dtype = DType::u8;
  Shape shape{};
  std::string bytes{};

  /// Valid until `bytes` changes. Throws InvalidArgument unless `bytes` has the size that `dtype`
  /// and `shape` need.
  [[nodiscard]] KOLO_EXPORT ConstTensorView view() const;
  friend bool operator==(const StoredTensor&, const StoredTensor&) = default;
};

/// Strings by name, all UTF-8.
using Metadata = std::map<std::string, std::string>;

/// Tensors in memory by name, such as {{"weight", weight}, {"bias", bias}} of two vectors.
using TensorViews = std::map<std::string, TensorView>;
using ConstTensorViews = std::map<std::string, ConstTensorView>;

struct StateView;

/// The state of an object: copies of its tensors, and metadata. Text, such as a sampler's state, is
/// one tensor of bytes whose name is empty; the empty text is an empty state.
struct StateDict {
  std::map<std::string, StoredTensor> tensors{};
  Metadata metadata{};

  StateDict() = default;
  /// Text, or bytes in a format of the program.
  template <typename Text>
    requires(!std::same_as<std::remove_cvref_t<Text>, StateDict> &&
             !std::same_as<std::remove_cvref_t<Text>, StateView> &&
             std::convertible_to<Text, std::string>)
  StateDict(Text&& text) {  // NOLINT(google-explicit-constructor)
    set_text(std::forward<Text>(text));
  }
  /// Copies tensors in CPU memory. Throws InvalidArgument for a tensor on a GPU.
  KOLO_EXPORT explicit StateDict(const ConstTensorViews& views, Metadata texts = {});

  [[nodiscard]] bool empty() const noexcept { return tensors.empty() && metadata.empty(); }
  /// The text that the state was made from. Throws InvalidArgument if the state has named tensors
  /// or metadata.
  [[nodiscard]] KOLO_EXPORT const std::string& text() const;
  /// The same, for functions that take text, such as a sampler's `load_state`. Not for a temporary
  /// state, whose text would end with it.
  operator const std::string&() const& { return text(); }  // NOLINT(google-explicit-constructor)
  operator const std::string&() const&& = delete;          // NOLINT(google-explicit-constructor)
  KOLO_EXPORT void set_text(std::string text);
  /// Views of the tensors, valid until the tensors change.
  [[nodiscard]] KOLO_EXPORT ConstTensorViews views() const;

  friend bool operator==(const StateDict&, const StateDict&) = default;
};

/// The states of several objects by name.
using NamedStates = std::map<std::string, StateDict>;

/// A tensor whose elements are read when they are needed: from memory, a GPU or a file.
struct TensorSource {
  DType dtype = DType::u8;
  Shape shape{};
  /// Copies the bytes [begin, begin + into.size()) of the elements, which are row-major, without
  /// gaps and little-endian. Throws if they cannot be read.
  std::function<void(std::uint64_t begin, std::span<char> into)> read{};

  TensorSource() = default;
  KOLO_EXPORT TensorSource(DType type, const Shape& lengths, decltype(read) reader);
  /// A tensor in CPU memory, which must outlive this object. Throws InvalidArgument for a tensor on
  /// a GPU; `name` is for the message.
  KOLO_EXPORT TensorSource(const std::string& name, const ConstTensorView& view);

  [[nodiscard]] KOLO_EXPORT std::uint64_t bytes() const;
};

/// The state of an object, not copied: its tensors where they are, and metadata. What it was made
/// from must outlive it, except text and a StateDict that was moved into it.
struct StateView {
  std::map<std::string, TensorSource> tensors{};
  Metadata metadata{};

  StateView() = default;
  /// Text, or bytes in a format of the program.
  template <typename Text>
    requires(!std::same_as<std::remove_cvref_t<Text>, StateDict> &&
             !std::same_as<std::remove_cvref_t<Text>, StateView> &&
             std::convertible_to<Text, std::string>)
  StateView(Text&& text)  // NOLINT(google-explicit-constructor)
      : StateView(StateDict(std::forward<Text>(text))) {}
  /// Tensors in CPU memory. Throws InvalidArgument for a tensor on a GPU.
  KOLO_EXPORT explicit StateView(const ConstTensorViews& views, Metadata texts = {});
  KOLO_EXPORT StateView(const StateDict& state);  // NOLINT(google-explicit-constructor)
  KOLO_EXPORT StateView(StateDict&& state);       // NOLINT(google-explicit-constructor)

  [[nodiscard]] bool empty() const noexcept { return tensors.empty() && metadata.empty(); }
  /// Reads all tensors. Throws what their sources throw.
  [[nodiscard]] KOLO_EXPORT StateDict copy() const;
  /// As `StateDict::text`.
  [[nodiscard]] KOLO_EXPORT std::string text() const;
  /// The same, for functions that take a StateDict or text, such as a sampler's `load_state`.
  operator StateDict() const { return copy(); }    // NOLINT(google-explicit-constructor)
  operator std::string() const { return text(); }  // NOLINT(google-explicit-constructor)
};

/// The states of several objects by name, such as the parts of a checkpoint.
using NamedViews = std::map<std::string, StateView>;

/// Converts a state to the bytes of a safetensors file and back. Throws InvalidArgument for names
/// or metadata that are not UTF-8, and for bytes of another format.
[[nodiscard]] KOLO_EXPORT std::string to_safetensors(const StateDict& state);
[[nodiscard]] KOLO_EXPORT StateDict from_safetensors(std::string_view bytes);

}  // namespace kolo
