// SPDX-License-Identifier: Apache-2.0
// Implements kolo/c/request.h.
#include "kolo/c/request.h"

#include <cmath>
#include <memory>
#include <vector>

#include "c/boundary.hpp"
#include "c/handles.hpp"

namespace kolo::internal::c {

extern "C" {

KOLO_C_EXPORT kolo_status kolo_request_wait(kolo_request* request) {
  return guarded([&] { Use(request, "kolo_request_wait")->wait(); });
}

KOLO_C_EXPORT kolo_status kolo_request_wait_for(kolo_request* request, double seconds, int* done) {
  return guarded([&] {
    const char* const function = "kolo_request_wait_for";
    if (std::isnan(seconds)) throw InvalidArgument("kolo_request_wait_for: `seconds` is NaN");
    int& result = not_null(done, function, "done");
    const bool is_done = Use(request, function)->wait_for(std::chrono::duration<double>(seconds));
    result = is_done ? 1 : 0;
  });
}

KOLO_C_EXPORT kolo_status kolo_request_synchronize(kolo_request* request) {
  return guarded([&] { Use(request, "kolo_request_synchronize")->synchronize(); });
}

KOLO_C_EXPORT kolo_status kolo_request_ready(kolo_request* request, int* ready) {
  return guarded([&] {
    int& result = not_null(ready, "kolo_request_ready", "ready");
    result = Use(request, "kolo_request_ready")->ready() ? 1 : 0;
  });
}

KOLO_C_EXPORT kolo_status kolo_request_finished(kolo_request* request, int* finished) {
  return guarded([&] {
    int& result = not_null(finished, "kolo_request_finished", "finished");
    result = Use(request, "kolo_request_finished")->finished() ? 1 : 0;
  });
}

KOLO_C_EXPORT kolo_status kolo_request_wait_any(kolo_request* const* requests, size_t count,
                                                size_t* index) {
  return guarded([&] {
    const char* const function = "kolo_request_wait_any";
    require_array(requests, count, function, "requests");
    if (count == 0) throw InvalidArgument("kolo_request_wait_any: there are no requests");
    std::vector<std::unique_ptr<Use<kolo_request>>> uses;
    std::vector<const detail::FutureBase*> futures;
    for (std::size_t i = 0; i < count; ++i) {
      uses.push_back(std::make_unique<Use<kolo_request>>(requests[i], function));
      futures.push_back(&**uses.back());
    }
    detail::FutureBase::wait_for_any(futures);
    for (std::size_t i = count; index != nullptr && i-- > 0;)
      if (futures[i]->ready()) *index = i;
  });
}

KOLO_C_EXPORT kolo_status kolo_request_free(kolo_request* request) {
  return guarded([&] { free_handle(request, "kolo_request_free"); });
}

}  // extern "C"

}  // namespace kolo::internal::c
