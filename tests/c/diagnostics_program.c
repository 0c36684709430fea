/* SPDX-License-Identifier: Apache-2.0 */
/* Statistics, timelines, flight records and the build through the C interface. */
#include <unistd.h>

#include "check.h"

static int me, n;

static void reduce_once(void) {
  float values[6] = {0};
  const int64_t six = 6;
  const kolo_tensor tensor = vector_of(values, KOLO_F32, &six);
  CHECK_OK(kolo_allreduce(&tensor, NULL));
}

static void test_statistics(void) {
  struct {
    kolo_statistics known;
    uint64_t unknown;
  } newer = {.unknown = 7};
  kolo_statistics older = {.finished = 99};
  const size_t submitted_only = sizeof(uint64_t);
  uint64_t operations = 9, bytes = 9;
  char text[40];
  size_t length = 0;
  for (int i = 0; i < 3; ++i) reduce_once();
  CHECK_OK(kolo_read_statistics(&newer.known, sizeof newer.known));
  CHECK(newer.known.submitted == 3 && newer.known.finished == 3 && newer.known.failed == 0);
  CHECK(newer.known.negotiation.count == 3 && newer.known.batches >= 1 && newer.unknown == 7);
  CHECK(newer.known.batch_operations.sum == 3);
  CHECK(kolo_histogram_mean(&newer.known.batch_operations) == 3.0 / newer.known.batches);
  CHECK(kolo_histogram_quantile(&newer.known.batch_operations, 1.0) ==
        newer.known.batch_operations.max);
  CHECK(kolo_histogram_mean(NULL) == 0.0 && kolo_histogram_quantile(NULL, 0.5) == 0);
  CHECK_OK(kolo_read_statistics(&newer.known, sizeof newer)); /* of a newer library */
  CHECK(newer.known.submitted == 3 && newer.unknown == 0);
  CHECK_ERROR(kolo_read_statistics(&older, submitted_only), KOLO_INVALID_ARGUMENT,
              "a struct of 8 bytes");
  CHECK(older.finished == 99);
  CHECK_ERROR(kolo_read_statistics(&older, SIZE_MAX), KOLO_INVALID_ARGUMENT, "a struct of");
  CHECK_ERROR(kolo_read_statistics(NULL, sizeof older), KOLO_INVALID_ARGUMENT,
              "`statistics` is null");
  CHECK_OK(kolo_read_kind_statistics("allreduce", &operations, &bytes));
  CHECK(operations == 3 && bytes == 3 * 6 * sizeof(float));
  CHECK_OK(kolo_read_kind_statistics("broadcast", &operations, NULL));
  CHECK(operations == 0);
  CHECK_FAILS(kolo_read_kind_statistics(NULL, NULL, NULL), KOLO_INVALID_ARGUMENT);
  CHECK_OK(kolo_statistics_text(text, sizeof text, &length));
  CHECK(strlen(text) == sizeof text - 1 && length > sizeof text);
  CHECK_FAILS(kolo_statistics_text(NULL, 3, &length), KOLO_INVALID_ARGUMENT);
}

/* The first bytes of a file, which is then removed. */
static void take_file(const char* path, char* text, size_t capacity) {
  FILE* const file = fopen(path, "r");
  CHECK(file != NULL);
  const size_t count = fread(text, 1, capacity - 1, file);
  text[count] = '\0';
  CHECK(fclose(file) == 0 && remove(path) == 0);
}

static void test_files(const char* base) {
  char pattern[500], path[500], text[500], start[2000];
  size_t length = 0;
  const int process = (int)getpid(); /* tests of other numbers of ranks may run too */
  snprintf(pattern, sizeof pattern, "%s.%d.%%r.json", base, process);
  snprintf(path, sizeof path, "%s.%d.%d.json", base, process, me);
  CHECK_FAILS(kolo_start_timeline(NULL), KOLO_INVALID_ARGUMENT);
  CHECK_FAILS(kolo_start_timeline("/no/such/folder/%r"), KOLO_INVALID_ARGUMENT);
  CHECK_OK(kolo_start_timeline(pattern));
  CHECK_FAILS(kolo_start_timeline(pattern), KOLO_INVALID_ARGUMENT);
  reduce_once();
  CHECK_OK(kolo_stop_timeline());
  CHECK_OK(kolo_stop_timeline());
  take_file(path, start, sizeof start);
  CHECK(start[0] == '[' || start[0] == '{');

  snprintf(path, sizeof path, "%s.%d.jsonl", base, process);
  CHECK_FAILS(kolo_write_flight_record(path, NULL, 8, NULL), KOLO_INVALID_ARGUMENT);
  CHECK_OK(kolo_write_flight_record(path, text, sizeof text, &length));
  CHECK(strcmp(text, path) == 0 && length == strlen(path));
  take_file(path, start, sizeof start);
  CHECK(start[0] == '{');
  CHECK_FAILS(kolo_write_flight_record("/no/such/folder/x", NULL, 0, NULL), KOLO_INVALID_ARGUMENT);
  CHECK_OK(kolo_write_flight_record(NULL, text, sizeof text, NULL));
  CHECK(strstr(text, "kolo-flight-") != NULL);
  take_file(text, start, sizeof start);
}

static void test_without_session(void) {
  kolo_statistics statistics;
  kolo_build build;
  uint64_t operations;
  CHECK_FAILS(kolo_read_statistics(&statistics, sizeof statistics), KOLO_NOT_INITIALIZED);
  CHECK_FAILS(kolo_read_kind_statistics("allreduce", &operations, NULL), KOLO_NOT_INITIALIZED);
  CHECK_FAILS(kolo_statistics_text(NULL, 0, NULL), KOLO_NOT_INITIALIZED);
  CHECK_FAILS(kolo_start_timeline("x"), KOLO_NOT_INITIALIZED);
  CHECK_FAILS(kolo_stop_timeline(), KOLO_NOT_INITIALIZED);
  CHECK_FAILS(kolo_write_flight_record(NULL, NULL, 0, NULL), KOLO_NOT_INITIALIZED);
  CHECK_OK(kolo_read_build(&build, sizeof build));
  CHECK(strcmp(build.version, kolo_version()) == 0 && build.mpi_library != NULL);
  CHECK(build.cuda != NULL && build.nccl != NULL);
  CHECK_FAILS(kolo_read_build(&build, sizeof(char*)), KOLO_INVALID_ARGUMENT);
  CHECK_FAILS(kolo_read_build(NULL, sizeof build), KOLO_INVALID_ARGUMENT);
}

int main(int argc, char** argv) {
  test_without_session();
  CHECK_OK(kolo_init(argc, argv, NULL, 0));
  CHECK_OK(kolo_rank(&me));
  CHECK_OK(kolo_size(&n));
  test_statistics();
  test_files(argv[0]);
  CHECK_OK(kolo_barrier(NULL));
  CHECK_OK(kolo_shutdown());
  test_without_session();
  if (me == 0) printf("all reports are right\n");
  return 0;
}
