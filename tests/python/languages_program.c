/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks in C of a job whose other ranks are in Python: languages_program.py does the same. */
#include <kolo/c/kolo.h>
#include <stdio.h>
#include <stdlib.h>

static void check(kolo_status status) {
  if (status == KOLO_OK) return;
  fprintf(stderr, "%s: %s\n", kolo_status_name(status), kolo_last_error_message());
  exit(1);
}

int main(void) {
  enum { count = 1000 };
  static float values[count];
  const int64_t shape[] = {count}, wrong_shape[] = {count - 1};
  const kolo_tensor tensor = {values, KOLO_F32, {KOLO_CPU, 0}, 1, shape};
  const kolo_tensor wrong = {values, KOLO_F32, {KOLO_CPU, 0}, 1, wrong_shape};
  const kolo_named_tensor parameter = {"values", tensor};
  kolo_reduce_options options = KOLO_REDUCE_OPTIONS;
  unsigned long hash = 5381;
  int rank, i;
  check(kolo_init(0, NULL, NULL, 0));
  check(kolo_rank(&rank));
  for (i = 0; i < count; ++i) values[i] = 1.0f / (float)(3 * i + rank + 1);
  options.name = "gradient";
  check(kolo_allreduce(&tensor, &options));
  check(kolo_require_equal(&parameter, 1, NULL));
  for (i = 0; i < (int)sizeof values; ++i)
    hash = (hash * 33 + ((unsigned char*)values)[i]) & 0xffffffff;
  printf("bits: %lu\n", hash);
  options.name = "mistake";
  if (kolo_allreduce(&wrong, &options) != KOLO_MISMATCH) return 1;
  printf("text: %s\n", kolo_last_error_message());
  check(kolo_shutdown());
  return 0;
}
