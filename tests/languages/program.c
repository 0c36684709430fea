/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks in C of a job whose ranks are in several languages: see program.cpp. */
#include <kolo/c/kolo.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { count = 100, max_ranks = 8 };

static int me, n;

static void check(kolo_status status) {
  if (status == KOLO_OK) return;
  fprintf(stderr, "%s: %s\n", kolo_status_name(status), kolo_last_error_message());
  exit(1);
}

/* Prints the line in one piece, beside the other ranks'. */
static void print(const char* line) {
  puts(line);
  fflush(stdout);
}

static void print_bits(const char* name, const void* values, size_t bytes) {
  char text[8192];
  int length = sprintf(text, "bits of %s: ", name);
  for (size_t i = 0; i < bytes; ++i)
    length += sprintf(text + length, "%02x", ((const unsigned char*)values)[i]);
  print(text);
}

static void print_error(kolo_status wanted, const char* kind, kolo_status status) {
  char text[8192];
  const int* ranks = NULL;
  const size_t known = kolo_last_error_ranks(&ranks);
  if (status != wanted) {
    print("no error");
    return;
  }
  int length = sprintf(text, "error %s of '%s', ranks", kind, kolo_last_error_tensor());
  for (size_t i = 0; i < known; ++i) length += sprintf(text + length, " %d", ranks[i]);
  snprintf(text + length, sizeof text - (size_t)length, ": %s", kolo_last_error_message());
  print(text);
}

static kolo_tensor vector_of(void* data, kolo_dtype dtype, const int64_t* shape) {
  const kolo_tensor tensor = {data, dtype, {KOLO_CPU, 0}, 1, shape};
  return tensor;
}

static void make_values(float* values) {
  for (int i = 0; i < count; ++i) values[i] = 1.0f / (3.0f * (float)i + (float)me + 1.0f);
}

static void reduce(void) {
  float values[count];
  double doubles[7];
  int32_t integers[5];
  const int64_t all = count, seven = 7, five = 5;
  const kolo_tensor tensor = vector_of(values, KOLO_F32, &all);
  const kolo_tensor group[2] = {vector_of(doubles, KOLO_F64, &seven),
                                vector_of(integers, KOLO_I32, &five)};
  kolo_reduce_options options = KOLO_REDUCE_OPTIONS;
  make_values(values);
  options.name = "gradient";
  check(kolo_allreduce(&tensor, &options));
  print_bits("allreduce", values, sizeof values);
  make_values(values);
  options.name = NULL;
  options.op = KOLO_SUM;
  options.prescale = 0.5;
  options.compression = KOLO_COMPRESSION_BF16;
  check(kolo_allreduce(&tensor, &options));
  print_bits("compressed allreduce", values, sizeof values);
  for (int i = 0; i < 7; ++i) doubles[i] = 1.0 / (i + me + 2);
  for (int i = 0; i < 5; ++i) integers[i] = i * (me + 1);
  options.prescale = 1.0;
  options.compression = KOLO_COMPRESSION_NONE;
  check(kolo_grouped_allreduce(group, 2, &options));
  print_bits("group's doubles", doubles, sizeof doubles);
  print_bits("group's integers", integers, sizeof integers);
}

/* Prints the rows of all ranks. */
static void print_gathered(const char* name, void* data, kolo_dtype dtype, int64_t rows,
                           size_t row_bytes) {
  const kolo_tensor tensor = vector_of(data, dtype, &rows);
  int64_t all[max_ranks], total = 0;
  void* gathered = NULL;
  check(kolo_allgather(&tensor, kolo_allocate, &gathered, all, NULL));
  for (int i = 0; i < n; ++i) total += all[i];
  print_bits(name, gathered, (size_t)total * row_bytes);
  free(gathered);
}

static void move(void) {
  float values[count], received[count];
  int64_t sent[2 * max_ranks];
  const int64_t all = count, rows = kolo_reducescatter_rows(count, me, n), twice = 2 * (int64_t)n;
  const kolo_tensor tensor = vector_of(values, KOLO_F32, &all);
  const kolo_tensor output = vector_of(received, KOLO_F32, &all);
  const kolo_tensor own = vector_of(received, KOLO_F32, &rows);
  const kolo_tensor exchanged = vector_of(sent, KOLO_I64, &twice);
  kolo_reduce_options sum = KOLO_REDUCE_OPTIONS;
  void* memory = NULL;
  sum.op = KOLO_SUM;
  make_values(values);
  print_gathered("allgather", values, KOLO_F32, me + 1, sizeof *values);
  memcpy(received, values, sizeof values);
  check(kolo_broadcast(&output, n - 1, NULL));
  print_bits("broadcast", received, sizeof received);
  check(kolo_reducescatter(&tensor, &own, &sum));
  print_gathered("reducescatter", received, KOLO_F32, rows, sizeof *received);
  for (int i = 0; i < 2 * n; ++i) sent[i] = 100 * me + i;
  check(kolo_alltoall(&exchanged, NULL, 0, kolo_allocate, &memory, NULL, NULL));
  print_gathered("alltoall", memory, KOLO_I64, twice, sizeof *sent);
  free(memory);
}

static void use_sets_and_requests(void) {
  static const char* const names[2] = {"first", "second"};
  static const kolo_reduce_op ops[2] = {KOLO_PRODUCT, KOLO_MIN};
  float values[count], both[2][count];
  const int64_t all = count;
  const kolo_tensor tensor = vector_of(values, KOLO_F32, &all);
  kolo_reduce_options options = KOLO_REDUCE_OPTIONS;
  kolo_process_set* set;
  kolo_request* requests[2];
  int even[max_ranks], members = 0;
  for (int rank = 0; rank < n; rank += 2) even[members++] = rank;
  make_values(values);
  check(kolo_process_set_add(even, (size_t)members, &set));
  options.op = KOLO_MAX;
  options.process_set = set;
  if (me % 2 == 0) check(kolo_allreduce(&tensor, &options));
  check(kolo_broadcast(&tensor, 0, NULL));
  print_bits("set of even ranks", values, sizeof values);
  options.process_set = NULL;
  for (int i = 0; i < 2; ++i) { /* in another order on each second rank */
    const int k = (i + me) % 2;
    const kolo_tensor one = vector_of(both[k], KOLO_F32, &all);
    make_values(both[k]);
    options.name = names[k];
    options.op = ops[k];
    check(kolo_allreduce_async(&one, &options, requests + i));
  }
  for (int i = 0; i < 2; ++i) {
    check(kolo_request_wait(requests[i]));
    check(kolo_request_free(requests[i]));
  }
  print_bits("first request", both[0], sizeof both[0]);
  print_bits("second request", both[1], sizeof both[1]);
  check(kolo_process_set_free(set));
}

static void make_mistakes(void) {
  float values[count];
  const int64_t all = count, some = me == 1 ? count - 1 : count;
  const kolo_tensor tensor = vector_of(values, KOLO_F32, &all);
  const kolo_tensor other = vector_of(values, KOLO_F32, &some);
  kolo_reduce_options options = KOLO_REDUCE_OPTIONS;
  kolo_collective_options start = KOLO_COLLECTIVE_OPTIONS;
  make_values(values);
  options.name = "weights";
  print_error(KOLO_MISMATCH, "Mismatch", kolo_allreduce(&other, &options));
  start.name = "start";
  print_error(KOLO_MISMATCH, "Mismatch", kolo_broadcast(&tensor, me == 1 ? 1 : 0, &start));
  if (me == n - 1) return;
  options.name = "missed";
  print_error(KOLO_PEER_LEFT, "PeerLeft", kolo_allreduce(&tensor, &options));
}

int main(int argc, char** argv) {
  const kolo_setting quiet = {"flight_recorder_dir", "off"};
  check(kolo_init(argc, argv, &quiet, 1));
  check(kolo_rank(&me));
  check(kolo_size(&n));
  if (n > max_ranks) return 1;
  reduce();
  move();
  use_sets_and_requests();
  make_mistakes();
  check(kolo_shutdown());
  return 0;
}
