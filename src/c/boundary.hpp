// SPDX-License-Identifier: Apache-2.0
// The border between C and C++: exceptions become the status of a call, and the last error of its
// thread.
#pragma once

#include <cstddef>
#include <cstring>
#include <exception>
#include <string>
#include <utility>

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

/// Throws InvalidArgument unless `pointer` has `count` elements.
inline void require_array(const void* pointer, std::size_t count, const char* function,
                          const char* argument) {
  if (pointer == nullptr && count > 0) refuse_null(function, argument);
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
