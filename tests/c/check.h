/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of the tests in C. A check that fails prints its place and ends the process: the other
 * ranks then fail with it. */
#ifndef CHECK_H
#define CHECK_H

#include <kolo/c/kolo.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                        \
  do {                                                                          \
    if (!(condition)) {                                                         \
      fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                                  \
    }                                                                           \
  } while (0)

#define CHECK_OK(call) check_status(__FILE__, __LINE__, (call), KOLO_OK)
#define CHECK_FAILS(call, wanted) check_status(__FILE__, __LINE__, (call), (wanted))
/* The call fails with this status, and a message that contains `text`. */
#define CHECK_ERROR(call, wanted, text)                 \
  do {                                                  \
    check_status(__FILE__, __LINE__, (call), (wanted)); \
    check_message(__FILE__, __LINE__, (text));          \
  } while (0)

static inline void check_status(const char* file, int line, kolo_status status,
                                kolo_status wanted) {
  if (status == wanted) return;
  fprintf(stderr, "%s:%d: %s, wanted %s: %s\n", file, line, kolo_status_name(status),
          kolo_status_name(wanted), kolo_last_error_message());
  exit(1);
}

static inline void check_message(const char* file, int line, const char* text) {
  if (strstr(kolo_last_error_message(), text) != NULL) return;
  fprintf(stderr, "%s:%d: the message '%s' does not contain '%s'\n", file, line,
          kolo_last_error_message(), text);
  exit(1);
}

/* A vector of `*count` elements on the CPU. */
static inline kolo_tensor vector_of(void* data, kolo_dtype dtype, const int64_t* count) {
  kolo_tensor tensor = {data, dtype, {KOLO_CPU, 0}, 1, NULL};
  tensor.shape = count;
  return tensor;
}

#endif
