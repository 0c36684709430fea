// SPDX-License-Identifier: Apache-2.0
// The border between C and C++: exceptions become the status of a call, and the last error of its
// thread.
#pragma once

#include <cstddef>
#include <cstring>
#include <exception>
#include <limits>
#include <string>
#include <utility>

#include "diagnostics/json_text.hpp"
#include "kolo/c/types.h"
#include "kolo/error.hpp"

namespace kolo::internal::c {

/// Makes the exception that is being handled the last error of this thread. Returns its status.
kolo_status keep_current_exception() noexcept;

/// Runs `call`, and returns the status of what it throws.
template <typename Call>
kolo_status guarded(Call&& call) {
  try {
    std::forward<Call>(call)();
    return KOLO_OK;
  } catch (...) {
    return keep_current_exception();
  }
}

/// Cuts the tensor of this thread's last error down to that many bytes at its end.
void keep_end_of_tensor(std::size_t bytes) noexcept;

/// Throws what a function of the program has returned, `what` in messages: the exception of the
/// last call of this thread that failed, if it has this status, else an Error.
[[noreturn]] void throw_status(kolo_status status, const char* what);

/// Exists while a function of the program saves or loads an object of an elastic state, which the
/// state may change and free meanwhile only by itself.
class ObjectFunction {
 public:
  ObjectFunction() noexcept;
  ~ObjectFunction();
  ObjectFunction(const ObjectFunction&) = delete;
  ObjectFunction& operator=(const ObjectFunction&) = delete;
  /// Throws InvalidArgument if there is one on this thread.
  static void require_none(const char* function);
};

[[noreturn]] void refuse_null(const char* function, const char* argument);

/// Throws InvalidArgument for a null pointer. The messages name the function of C.
template <typename T>
T& not_null(T* pointer, const char* function, const char* argument) {
  if (pointer == nullptr) refuse_null(function, argument);
  return *pointer;
}

/// Throws InvalidArgument for a null pointer to memory for results.
inline void require_room(const void* pointer, std::size_t capacity, const char* function,
                         const char* argument) {
  if (pointer == nullptr && capacity > 0) refuse_null(function, argument);
}

[[noreturn]] void refuse_count(const char* function, const char* argument, std::size_t count);

/// Throws InvalidArgument unless there can be an array of `count` elements at `pointer`.
template <typename T>
void require_array(const T* pointer, std::size_t count, const char* function,
                   const char* argument) {
  require_room(pointer, count, function, argument);
  if (count > std::numeric_limits<std::ptrdiff_t>::max() / sizeof(T))
    refuse_count(function, argument, count);
}

[[noreturn]] void refuse_text(const char* function, const char* argument);

/// A text of the program: a name, which ranks compare and which files and messages contain. Throws
/// InvalidArgument for null, and for a text that is not UTF-8.
inline std::string text_of(const char* given, const char* function, const char* argument) {
  std::string text = &not_null(given, function, argument);
  if (!diagnostics::is_utf8(text)) refuse_text(function, argument);
  return text;
}

/// The same, with "" for null.
inline std::string optional_text(const char* given, const char* function, const char* argument) {
  return given == nullptr ? std::string() : text_of(given, function, argument);
}

/// Copies a text to memory of the program, cut to its capacity.
void copy_text(const std::string& text, char* to, std::size_t capacity, std::size_t* length,
               const char* function);

[[noreturn]] void refuse_options(const char* function, std::size_t size);

/// The size of the options in the first version of this library that has them. Specialize it when a
/// member is added.
template <typename Options>
inline constexpr std::size_t first_size = sizeof(Options);

/// No version has options of this size.
inline constexpr std::size_t max_options_size = 4096;

/// The program's options, which may be those of an older version of this library, and so shorter,
/// or those of a newer one: then its further members must be zero, which stands for their defaults.
template <typename Options>
Options options_of(const Options* given, const Options& defaults, const char* function) {
  Options options = defaults;
  if (given == nullptr) return options;
  const std::size_t size = given->size;
  if (size < first_size<Options> || size >= max_options_size) refuse_options(function, size);
  const auto* const bytes = reinterpret_cast<const unsigned char*>(given);
  for (std::size_t i = sizeof options; i < size; ++i)
    if (bytes[i] != 0) refuse_options(function, size);
  std::memcpy(static_cast<void*>(&options), given, size < sizeof options ? size : sizeof options);
  return options;
}

}  // namespace kolo::internal::c
