// SPDX-License-Identifier: Apache-2.0
// Implements kolo/c/error.h, and the fault of kolo/c/checkpoint.h.
#include "c/boundary.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <new>
#include <type_traits>

#include "base/failure.hpp"
#include "kolo/c/checkpoint.h"
#include "kolo/c/error.h"
#include "kolo/elastic.hpp"
#include "kolo/optimizer.hpp"
#include "kolo/training/checkpoint.hpp"

namespace kolo::internal::c {
namespace {

/// The last error of a thread. The exception is kept, since its strings are part of it.
struct LastError {
  kolo_status status = KOLO_OK;
  std::exception_ptr exception{};
  std::string other_message{};  // of an exception that is not a std::exception
  const Error* error = nullptr;
  const char* message = "";
  const char* tensor = "";  // within `exception`
};

/// The memory of a thread's last error. It has no destructor, because functions of atexit() may
/// call Kolo after the destructors of their thread: their error lasts until the process ends.
struct Place {
  std::aligned_storage_t<sizeof(LastError), alignof(LastError)> memory;
  LastError* error = nullptr;
};
constinit thread_local Place place{};

struct EndOfThread {
  ~EndOfThread() {
    if (place.error != nullptr) std::destroy_at(std::exchange(place.error, nullptr));
  }
};

LastError& last_error() {
  if (place.error == nullptr) {
    thread_local const EndOfThread end;
    place.error = new (&place.memory) LastError;
  }
  return *place.error;
}

/// A callback of the program has returned a status of its own.
class ReturnedStatus final : public Error {
 public:
  ReturnedStatus(kolo_status status, const char* what)
      : Error(fmt::format("{} returned {}", what, kolo_status_name(status))), status_(status) {}
  [[nodiscard]] kolo_status status() const noexcept { return status_; }

 private:
  kolo_status status_;
};

/// The status of the exception that is being handled.
kolo_status current_status() {
  try {
    throw;
  } catch (const ReturnedStatus& returned) {
    return returned.status();
  } catch (const DuplicateName&) {
    return KOLO_DUPLICATE_NAME;
  } catch (const InvalidArgument&) {
    return KOLO_INVALID_ARGUMENT;
  } catch (const Mismatch&) {
    return KOLO_MISMATCH;
  } catch (const PeerLeft&) {
    return KOLO_PEER_LEFT;
  } catch (const Stalled&) {
    return KOLO_STALLED;
  } catch (const ShutDown&) {
    return KOLO_SHUT_DOWN;
  } catch (const BackendError&) {
    return KOLO_BACKEND_ERROR;
  } catch (const NotInitialized&) {
    return KOLO_NOT_INITIALIZED;
  } catch (const BackwardFailed&) {
    return KOLO_BACKWARD_FAILED;
  } catch (const HookFailed&) {
    return KOLO_HOOK_FAILED;
  } catch (const CheckpointError&) {
    return KOLO_CHECKPOINT_ERROR;
  } catch (const elastic::MembershipChanged&) {
    return KOLO_MEMBERSHIP_CHANGED;
  } catch (const Error&) {
    return KOLO_ERROR;
  } catch (const std::bad_alloc&) {
    return KOLO_OUT_OF_MEMORY;
  } catch (...) {
    return KOLO_FOREIGN_EXCEPTION;
  }
}

/// Operations that Kolo submits by itself have names that the program does not know.
bool is_own_name(const std::string& tensor) { return tensor.starts_with("kolo."); }

/// Sets the message, the tensor and the ranks from the exception that is being handled.
void describe(LastError& last) noexcept {
  try {
    throw;
  } catch (const Error& error) {
    last.error = &error;
    last.message = error.what();
    last.tensor = is_own_name(error.tensor()) ? "" : error.tensor().c_str();
  } catch (const std::exception& error) {
    last.message = error.what();
  } catch (...) {
    try {
      last.other_message = message_of_current_exception();
      last.message = last.other_message.c_str();
    } catch (...) {
      last.message = "an exception without a message";
    }
  }
}

}  // namespace

kolo_status keep_current_exception() noexcept {
  LastError& last = last_error();
  const std::exception_ptr before = std::exchange(last.exception, std::current_exception());
  if (before && before == last.exception) return last.status;  // passed on by `throw_status`
  last.error = nullptr;
  last.message = "";
  last.tensor = "";
  last.status = current_status();
  describe(last);
  return last.status;
}

void keep_end_of_tensor(std::size_t bytes) noexcept {
  LastError& last = last_error();
  const std::size_t length = std::strlen(last.tensor);  // 0 for an operation of Kolo's own
  last.tensor += length - std::min(bytes, length);
}

void throw_status(kolo_status status, const char* what) {
  const LastError& last = last_error();
  if (last.exception && last.status == status) std::rethrow_exception(last.exception);
  throw ReturnedStatus(status, what);
}

namespace {
thread_local int object_functions = 0;
}

ObjectFunction::ObjectFunction() noexcept { ++object_functions; }
ObjectFunction::~ObjectFunction() { --object_functions; }
void ObjectFunction::require_none(const char* function) {
  if (object_functions > 0)
    throw InvalidArgument(fmt::format(
        "{}: not within a function that saves or loads an object of an elastic state", function));
}

void refuse_null(const char* function, const char* argument) {
  throw InvalidArgument(fmt::format("{}: `{}` is null", function, argument));
}

void refuse_count(const char* function, const char* argument, std::size_t count) {
  throw InvalidArgument(fmt::format("{}: `{}` cannot have {} elements", function, argument, count));
}

void refuse_text(const char* function, const char* argument) {
  throw InvalidArgument(fmt::format("{}: `{}` is not UTF-8", function, argument));
}

void refuse_options(const char* function, std::size_t size) {
  throw InvalidArgument(fmt::format(
      "{}: the options have a size of {} bytes, which no version of Kolo has, or members that this "
      "version does not know: initialize them with the macro of their defaults",
      function, size));
}

void copy_text(const std::string& text, char* to, std::size_t capacity, std::size_t* length,
               const char* function) {
  require_room(to, capacity, function, "text");
  if (length != nullptr) *length = text.size();
  if (capacity == 0) return;
  const std::size_t copied = std::min(text.size(), capacity - 1);
  std::memcpy(to, text.data(), copied);
  to[copied] = '\0';
}

// A definition repeats KOLO_C_EXPORT, because g++ does not take it over from a declaration in
// another namespace.
extern "C" {

KOLO_C_EXPORT kolo_status kolo_last_error() { return last_error().status; }

KOLO_C_EXPORT const char* kolo_last_error_message() { return last_error().message; }

KOLO_C_EXPORT const char* kolo_last_error_tensor() { return last_error().tensor; }

KOLO_C_EXPORT size_t kolo_last_error_ranks(const int** ranks) {
  const Error* const error = last_error().error;
  if (ranks != nullptr) *ranks = error == nullptr ? nullptr : error->ranks().data();
  return error == nullptr ? 0 : error->ranks().size();
}

KOLO_C_EXPORT kolo_checkpoint_fault kolo_last_checkpoint_fault() {
  const auto* const error = dynamic_cast<const CheckpointError*>(last_error().error);
  if (error == nullptr) return KOLO_FAULT_NONE;
  return static_cast<kolo_checkpoint_fault>(KOLO_FAULT_MISSING + static_cast<int>(error->fault()));
}

KOLO_C_EXPORT const char* kolo_status_name(kolo_status status) {
  switch (status) {
    case KOLO_OK: return "KOLO_OK";
    case KOLO_ERROR: return "KOLO_ERROR";
    case KOLO_INVALID_ARGUMENT: return "KOLO_INVALID_ARGUMENT";
    case KOLO_DUPLICATE_NAME: return "KOLO_DUPLICATE_NAME";
    case KOLO_MISMATCH: return "KOLO_MISMATCH";
    case KOLO_PEER_LEFT: return "KOLO_PEER_LEFT";
    case KOLO_STALLED: return "KOLO_STALLED";
    case KOLO_SHUT_DOWN: return "KOLO_SHUT_DOWN";
    case KOLO_BACKEND_ERROR: return "KOLO_BACKEND_ERROR";
    case KOLO_NOT_INITIALIZED: return "KOLO_NOT_INITIALIZED";
    case KOLO_BACKWARD_FAILED: return "KOLO_BACKWARD_FAILED";
    case KOLO_HOOK_FAILED: return "KOLO_HOOK_FAILED";
    case KOLO_CHECKPOINT_ERROR: return "KOLO_CHECKPOINT_ERROR";
    case KOLO_MEMBERSHIP_CHANGED: return "KOLO_MEMBERSHIP_CHANGED";
    case KOLO_OUT_OF_MEMORY: return "KOLO_OUT_OF_MEMORY";
    case KOLO_FOREIGN_EXCEPTION: return "KOLO_FOREIGN_EXCEPTION";
    case KOLO_STATUS_MAX_: break;
  }
  return "unknown status";
}

}  // extern "C"

}  // namespace kolo::internal::c
