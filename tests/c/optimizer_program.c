/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizers of the C interface: results that are closed formulas of rank and size, and mistakes.
 * The argument `left`: the last rank leaves before a step. */
#include <math.h>

#include "check.h"

static int me, n;
static float weight[10];
static double bias[3];
static const int64_t ten = 10, three = 3;
static kolo_named_tensor gradients[2];

static void fill(double value) {
  for (int i = 0; i < 10; ++i) weight[i] = (float)value;
  for (int i = 0; i < 3; ++i) bias[i] = value;
}

static void check_all(double value) {
  for (int i = 0; i < 10; ++i) CHECK(weight[i] == (float)value);
  for (int i = 0; i < 3; ++i) CHECK(bias[i] == value);
}

static kolo_optimizer* optimizer_of(const kolo_optimizer_options* options) {
  kolo_optimizer* optimizer;
  CHECK_OK(kolo_optimizer_create(gradients, 2, NULL, 0, options, &optimizer));
  return optimizer;
}

static void test_steps(void) {
  const char* const both[2] = {"weight", "bias"};
  const kolo_gradient_group group = {both, 2};
  kolo_optimizer_options options = KOLO_OPTIMIZER_OPTIONS;
  for (int variant = 0; variant < 3; ++variant) {
    options.groups = variant == 1 ? &group : NULL;
    options.group_count = variant == 1;
    options.num_groups = variant == 2 ? 1 : 0;
    options.op = variant == 2 ? KOLO_SUM : KOLO_AVERAGE;
    kolo_optimizer* const optimizer = optimizer_of(variant == 0 ? NULL : &options);
    for (int step = 0; step < 3; ++step) {
      fill(me + step);
      CHECK_OK(kolo_optimizer_ready(optimizer, both[(me + step) % 2])); /* any order */
      CHECK_OK(kolo_optimizer_begin_step(optimizer));
      check_all((n - 1 + 2 * step) / 2.0 * (variant == 2 ? n : 1));
      CHECK_OK(kolo_optimizer_end_step(optimizer));
    }
    CHECK_OK(kolo_optimizer_free(optimizer));
  }
}

/* A step of three passes, and one of a single pass at the end of the data. */
static void test_passes(void) {
  kolo_optimizer_options options = KOLO_OPTIMIZER_OPTIONS;
  options.backward_passes_per_step = 3;
  options.accumulation = KOLO_ACCUMULATE_MEAN;
  kolo_optimizer* const optimizer = optimizer_of(&options);
  for (int passes = 3; passes > 0; passes -= 2) {
    for (int pass = 1; pass <= passes; ++pass) {
      fill(passes * me * pass); /* accumulated */
      CHECK_OK(kolo_optimizer_ready(optimizer, "bias"));
      if (pass < passes) CHECK_OK(kolo_optimizer_end_pass(optimizer));
    }
    if (passes == 3)
      CHECK_ERROR(kolo_optimizer_end_pass(optimizer), KOLO_INVALID_ARGUMENT, "this is the last");
    CHECK_OK(kolo_optimizer_begin_step(optimizer));
    for (int i = 0; i < 3; ++i) CHECK(fabs(bias[i] - passes * (n - 1) / 2.0) < 1e-9);
    CHECK_OK(kolo_optimizer_end_step(optimizer));
  }
  CHECK_OK(kolo_optimizer_free(optimizer));
}

static void test_clipping(void) {
  kolo_optimizer* const optimizer = optimizer_of(NULL);
  double norm = 0.0;
  CHECK_ERROR(kolo_optimizer_begin_reduced_step(optimizer), KOLO_INVALID_ARGUMENT,
              "call kolo_optimizer_reduce first");
  CHECK_ERROR(kolo_optimizer_clip_grad_norm(optimizer, 1.0, &norm), KOLO_INVALID_ARGUMENT,
              "call kolo_optimizer_reduce first");
  fill(2.0 * me);
  CHECK_OK(kolo_optimizer_reduce(optimizer));
  check_all(n - 1.0);
  CHECK_FAILS(kolo_optimizer_clip_grad_norm(optimizer, -1.0, &norm), KOLO_INVALID_ARGUMENT);
  CHECK_OK(kolo_optimizer_clip_grad_norm(optimizer, 1.0, &norm));
  CHECK(fabs(norm - (n - 1) * sqrt(13.0)) < 1e-6);
  for (int i = 0; i < 3; ++i) CHECK(n == 1 || fabs(bias[i] - 1.0 / sqrt(13.0)) < 1e-6);
  CHECK_OK(kolo_optimizer_clip_grad_norm(optimizer, 100.0, NULL));
  CHECK_OK(kolo_optimizer_begin_reduced_step(optimizer));
  CHECK_OK(kolo_optimizer_end_step(optimizer));
  CHECK_FAILS(kolo_optimizer_begin_reduced_step(optimizer), KOLO_INVALID_ARGUMENT);
  /* Gradients that changed after their reduction are not reduced. */
  CHECK_OK(kolo_optimizer_reduce(optimizer));
  CHECK_OK(kolo_optimizer_ready(optimizer, "bias"));
  CHECK_ERROR(kolo_optimizer_begin_reduced_step(optimizer), KOLO_INVALID_ARGUMENT,
              "gradients of an earlier reduce()");
  CHECK_OK(kolo_optimizer_discard(optimizer));
  /* A step that all ranks skip. */
  CHECK_OK(kolo_optimizer_reduce(optimizer));
  fill(me);
  CHECK_OK(kolo_optimizer_begin_step(optimizer));
  check_all((n - 1) / 2.0);
  CHECK_OK(kolo_optimizer_end_step(optimizer));
  CHECK_OK(kolo_optimizer_free(optimizer));
}

/* Three steps of gradient descent, in which each rank updates its shards; the parameters are those
 * of one process, because the gradients are sums of small integers. */
static void test_sharding(kolo_sharding sharding) {
  float weights[10], seen = 0.0f;
  double biases[3];
  const kolo_named_tensor parameters[2] = {{"weight", vector_of(weights, KOLO_F32, &ten)},
                                           {"bias", vector_of(biases, KOLO_F64, &three)}};
  int64_t begin[2], end[2], sizes[2] = {0, 0};
  kolo_optimizer_options options = KOLO_OPTIMIZER_OPTIONS;
  kolo_optimizer* optimizer;
  options.op = KOLO_SUM;
  options.sharding = sharding;
  for (int i = 0; i < 10; ++i) weights[i] = (float)(i + 100 * me);
  for (int i = 0; i < 3; ++i) biases[i] = i + 100 * me;
  CHECK_OK(kolo_broadcast_parameters(parameters, 2, 0, NULL));
  CHECK_OK(kolo_require_equal(parameters, 2, NULL));
  CHECK_OK(kolo_optimizer_create(gradients, 2, parameters, 2, &options, &optimizer));
  for (size_t i = 0; i < 2; ++i) {
    CHECK_OK(kolo_optimizer_shard(optimizer, i, &begin[i], &end[i]));
    sizes[i] = end[i] - begin[i];
    CHECK(sizes[i] == kolo_reducescatter_rows(i == 0 ? 10 : 3, me, n));
  }
  CHECK_ERROR(kolo_optimizer_shard(optimizer, 2, begin, end), KOLO_INVALID_ARGUMENT,
              "parameter 2 of 2");
  for (int step = 1; step <= 3; ++step) {
    fill(me + step);
    CHECK_OK(kolo_optimizer_begin_step(optimizer));
    for (int64_t i = begin[0]; i < end[0]; ++i) weights[i] -= weight[i];
    for (int64_t i = begin[1]; i < end[1]; ++i) biases[i] -= bias[i];
    CHECK_OK(kolo_optimizer_end_step(optimizer));
    seen += (float)(n * (n - 1) / 2 + n * step);
  }
  for (int i = 0; i < 10; ++i) CHECK(weights[i] == (float)i - seen);
  for (int i = 0; i < 3; ++i) CHECK(biases[i] == i - seen);
  CHECK_OK(kolo_optimizer_begin_step(optimizer));
  CHECK_OK(kolo_optimizer_discard(optimizer)); /* gathers nothing */
  for (int i = 0; i < 10; ++i) CHECK(weights[i] == (float)i - seen);
  CHECK_OK(kolo_optimizer_rejoin(optimizer));
  CHECK_OK(kolo_optimizer_free(optimizer));
}

/* The last rank has one step less; the others' average is still divided by n. */
static void test_join(void) {
  kolo_optimizer* const optimizer = optimizer_of(NULL);
  for (int step = 0; step < (me == n - 1 ? 1 : 2); ++step) {
    fill(6.0);
    CHECK_OK(kolo_optimizer_begin_step(optimizer));
    check_all(step == 0 ? 6.0 : 6.0 * (n - 1) / n);
    CHECK_OK(kolo_optimizer_end_step(optimizer));
  }
  CHECK_OK(kolo_join(NULL));
  CHECK_OK(kolo_optimizer_free(optimizer));
}

static void test_process_set(void) {
  kolo_optimizer_options options = KOLO_OPTIMIZER_OPTIONS;
  CHECK_OK(kolo_process_set_add(&(int){0}, 1, &options.process_set));
  kolo_optimizer* const optimizer = optimizer_of(&options);
  fill(me);
  CHECK_OK(kolo_optimizer_begin_step(optimizer));
  check_all(me);
  CHECK_OK(kolo_optimizer_end_step(optimizer));
  CHECK_FAILS(kolo_optimizer_rejoin(optimizer), KOLO_INVALID_ARGUMENT);
  CHECK_OK(kolo_optimizer_free(optimizer));
  CHECK_OK(kolo_process_set_remove(options.process_set));
  CHECK_OK(kolo_process_set_free(options.process_set));
}

#define REFUSED(options, text)                                                     \
  CHECK_ERROR(kolo_optimizer_create(gradients, 2, NULL, 0, (options), &optimizer), \
              KOLO_INVALID_ARGUMENT, (text))

static void test_wrong_tensors(void) {
  kolo_named_tensor nameless[1] = {{NULL, gradients[0].tensor}};
  kolo_optimizer* optimizer = NULL;
  CHECK_ERROR(kolo_optimizer_create(gradients, 2, NULL, 0, NULL, NULL), KOLO_INVALID_ARGUMENT,
              "`optimizer` is null");
  CHECK_ERROR(kolo_optimizer_create(NULL, 2, NULL, 0, NULL, &optimizer), KOLO_INVALID_ARGUMENT,
              "`gradients` is null");
  CHECK_ERROR(kolo_optimizer_create(nameless, 1, NULL, 0, NULL, &optimizer), KOLO_INVALID_ARGUMENT,
              "`name` is null");
  nameless[0].name = "weight";
  nameless[0].tensor.data = NULL;
  CHECK_ERROR(kolo_optimizer_create(nameless, 1, NULL, 0, NULL, &optimizer), KOLO_INVALID_ARGUMENT,
              "the memory of 'weight' is null");
  nameless[0].tensor = gradients[0].tensor;
  CHECK_ERROR(kolo_optimizer_create(gradients, 1, gradients, 1, NULL, &optimizer),
              KOLO_INVALID_ARGUMENT, "share memory");
  CHECK_FAILS(kolo_optimizer_create((kolo_named_tensor[]){gradients[0], nameless[0]}, 2, NULL, 0,
                                    NULL, &optimizer),
              KOLO_INVALID_ARGUMENT);
  CHECK(optimizer == NULL);
}

static void test_wrong_options(void) {
  const kolo_optimizer_options defaults = KOLO_OPTIMIZER_OPTIONS;
  const char* names[2] = {"weight", NULL};
  const kolo_gradient_group group = {names, 2};
  kolo_optimizer_options options = defaults;
  kolo_optimizer* optimizer = NULL;
  options.op = KOLO_MAX;
  REFUSED(&options, "");
  options.op = (kolo_reduce_op)99;
  REFUSED(&options, "no operator with the number 99");
  options = defaults;
  options.accumulation = (kolo_accumulation)2;
  REFUSED(&options, "accumulation");
  options = defaults;
  options.sharding = (kolo_sharding)3;
  REFUSED(&options, "no sharding with the number 3");
  options.sharding = KOLO_SHARD_STATE;
  REFUSED(&options, "the same names");
  options = defaults;
  options.backward_passes_per_step = 0;
  REFUSED(&options, "");
  options = defaults;
  options.group_count = 1;
  REFUSED(&options, "`groups` is null");
  options.groups = &group;
  REFUSED(&options, "`groups` is null");
  names[1] = "wieght";
  REFUSED(&options, "wieght");
  options = defaults;
  options.compare_every = 2;
  REFUSED(&options, "compare");
  options = defaults;
  options.size = 4;
  REFUSED(&options, "the options have");
  CHECK(optimizer == NULL);
}

static void test_wrong_order(void) {
  kolo_optimizer* const optimizer = optimizer_of(NULL);
  int64_t begin, end;
  CHECK_ERROR(kolo_optimizer_ready(optimizer, NULL), KOLO_INVALID_ARGUMENT, "`name` is null");
  CHECK_ERROR(kolo_optimizer_ready(optimizer, "wieght"), KOLO_INVALID_ARGUMENT, "'wieght'");
  CHECK_ERROR(kolo_optimizer_end_step(optimizer), KOLO_INVALID_ARGUMENT, "no step has begun");
  CHECK_FAILS(kolo_optimizer_shard(optimizer, 0, &begin, &end), KOLO_INVALID_ARGUMENT);
  fill(1.0);
  CHECK_OK(kolo_optimizer_ready(optimizer, "weight"));
  CHECK_ERROR(kolo_optimizer_ready(optimizer, "weight"), KOLO_INVALID_ARGUMENT, "already ready");
  CHECK_OK(kolo_optimizer_begin_step(optimizer));
  CHECK_ERROR(kolo_optimizer_ready(optimizer, "weight"), KOLO_INVALID_ARGUMENT, "a step has begun");
  CHECK_FAILS(kolo_optimizer_end_pass(optimizer), KOLO_INVALID_ARGUMENT);
  CHECK_FAILS(kolo_optimizer_reduce(optimizer), KOLO_INVALID_ARGUMENT);
  CHECK_FAILS(kolo_optimizer_begin_step(optimizer), KOLO_INVALID_ARGUMENT);
  CHECK_FAILS(kolo_optimizer_begin_reduced_step(optimizer), KOLO_INVALID_ARGUMENT);
  CHECK_FAILS(kolo_optimizer_clip_grad_norm(optimizer, 1.0, NULL), KOLO_INVALID_ARGUMENT);
  CHECK_OK(kolo_optimizer_end_step(optimizer));
  CHECK_FAILS(kolo_request_wait((kolo_request*)optimizer), KOLO_INVALID_ARGUMENT);
  CHECK_OK(kolo_optimizer_free(optimizer));
  CHECK_OK(kolo_optimizer_free(NULL));
  CHECK_ERROR(kolo_optimizer_free(optimizer), KOLO_INVALID_ARGUMENT, "no optimizer, or one that");
  CHECK_FAILS(kolo_optimizer_begin_step(optimizer), KOLO_INVALID_ARGUMENT);
  CHECK_FAILS(kolo_optimizer_discard(NULL), KOLO_INVALID_ARGUMENT);
}

static void test_disagreement(void) {
  kolo_optimizer* optimizer = NULL;
  kolo_named_tensor other = gradients[1];
  if (n == 1) return;
  if (me == 0) other.name = "bais";
  CHECK_FAILS(kolo_optimizer_create(&other, 1, NULL, 0, NULL, &optimizer), KOLO_MISMATCH);
  CHECK(optimizer == NULL);
  fill(me);
  CHECK_ERROR(kolo_require_equal(gradients, 2, NULL), KOLO_MISMATCH, "weight");
  /* Parameters that differ show in the first pass. */
  CHECK_OK(kolo_optimizer_create(gradients, 1, &other, 0, NULL, &optimizer));
  CHECK_OK(kolo_optimizer_free(optimizer));
  double parameter = me;
  const int64_t one = 1;
  const kolo_named_tensor parameters = {"p", vector_of(&parameter, KOLO_F64, &one)};
  CHECK_OK(kolo_optimizer_create(gradients, 2, &parameters, 1, NULL, &optimizer));
  CHECK_ERROR(kolo_optimizer_begin_step(optimizer), KOLO_MISMATCH, "'p'");
  CHECK_ERROR(kolo_optimizer_end_step(optimizer), KOLO_INVALID_ARGUMENT, "no step has begun");
  CHECK_OK(kolo_optimizer_free(optimizer));
  /* One rank discards the step that the others apply. */
  optimizer = optimizer_of(NULL);
  if (me == 0) {
    CHECK_OK(kolo_optimizer_discard(optimizer));
  } else {
    CHECK_OK(kolo_optimizer_begin_step(optimizer));
    CHECK_OK(kolo_optimizer_end_step(optimizer));
  }
  CHECK_FAILS(kolo_optimizer_begin_step(optimizer), KOLO_MISMATCH);
  CHECK_OK(kolo_optimizer_free(optimizer));
}

/* The last rank leaves while the others step. */
static void test_departure(void) {
  kolo_optimizer* const optimizer = optimizer_of(NULL);
  const int* ranks = NULL;
  if (me == n - 1) return;
  CHECK_OK(kolo_optimizer_ready(optimizer, "bias"));
  CHECK_FAILS(kolo_optimizer_begin_step(optimizer), KOLO_PEER_LEFT);
  CHECK(kolo_last_error_ranks(&ranks) == 1 && ranks[0] == n - 1);
  fprintf(stderr, "rank %d misses rank %d\n", me, ranks[0]);
  CHECK_FAILS(kolo_optimizer_end_step(optimizer), KOLO_INVALID_ARGUMENT);
  CHECK_OK(kolo_optimizer_free(optimizer));
}

int main(int argc, char** argv) {
  kolo_optimizer* optimizer = NULL;
  const kolo_named_tensor list[2] = {{"weight", vector_of(weight, KOLO_F32, &ten)},
                                     {"bias", vector_of(bias, KOLO_F64, &three)}};
  memcpy(gradients, list, sizeof list);
  CHECK_FAILS(kolo_optimizer_create(gradients, 2, NULL, 0, NULL, &optimizer), KOLO_NOT_INITIALIZED);
  CHECK_OK(kolo_init(argc, argv, NULL, 0));
  CHECK_OK(kolo_rank(&me));
  CHECK_OK(kolo_size(&n));
  if (argc > 1) {
    test_departure();
    return kolo_shutdown() != KOLO_OK;
  }
  test_steps();
  test_passes();
  test_clipping();
  test_sharding(KOLO_SHARD_STATE);
  test_sharding(KOLO_SHARD_STATE_AND_GRADIENTS);
  test_join();
  test_process_set();
  test_wrong_tensors();
  test_wrong_options();
  test_wrong_order();
  test_disagreement();
  optimizer = optimizer_of(NULL);
  CHECK_OK(kolo_shutdown());
  CHECK_FAILS(kolo_optimizer_begin_step(optimizer), KOLO_NOT_INITIALIZED);
  CHECK_OK(kolo_optimizer_free(optimizer));
  if (me == 0) printf("all steps are right\n");
  return 0;
}
