/* The scheduler's rules, one test per rule, over the real cache and without a model (support/sched_queue.h).
 *
 * The rules are numbered in the opening comment of src/engine/sched.c. Each step here is planned by pi__schedule; the
 * tests read n_new (tokens of a sequence in the step), row (-1 = waiting) and the plan. test_sched.c checks the same
 * scheduler with random operations.
 *
 *  1 -> a_step_mixes_prefill_and_decode
 *  2 -> a_step_computes_at_most_max_tokens_tokens
 *  3 -> a_sequence_with_one_uncomputed_token_is_decoding
 *  4 -> a_forced_run_of_up_to_32_tokens_is_decoding
 *  5 -> decoding_sequences_take_budget_first_in_list_order
 *  6 -> drafts_take_budget_after_decoding_and_before_prefill
 *  7 -> only_one_uncomputed_token_in_the_step_gets_drafts_verified
 *  8 -> drafts_leave_min_prefill_tokens_of_the_budget
 *  9 -> drafts_without_free_blocks_are_left_out
 * 10 -> running_prefills_take_budget_before_admission
 * 11 -> waiting_sequences_are_admitted_last_while_budget_remains
 * 12 -> budget_left_extends_chunks, extending_a_chunk_preempts_nothing
 * 13 -> a_prefill_takes_all_of_the_remaining_budget
 * 14 -> a_long_prefill_takes_half_of_the_budget_if_others_wait
 * 15 -> max_prefill_limits_a_step_that_decodes
 * 16 -> a_chunk_in_the_sparse_span_ends_at_a_sparse_block
 * 17 -> a_single_step_prompt_needs_budget_for_all_of_it
 * 18 -> lower_priority_goes_first
 * 19 -> tenants_with_fewer_running_sequences_go_first, turns_count_running_sequences
 * 20 -> equals_go_in_order_of_arrival (also lower_priority_goes_first)
 * 21 -> aged_requests_go_first, aged_requests_stay_in_front
 * 22 -> a_sequence_waits_for_a_free_row
 * 23 -> a_sequence_waits_for_blocks_for_all_of_its_tokens, a_window_needs_blocks_for_one_chunk
 * 24 -> a_sequence_without_room_ends_the_admission
 * 25 -> a_single_step_prompt_over_the_budget_ends_the_admission
 * 26 -> a_prompt_whose_prefix_is_being_computed_waits
 * 27 -> a_prompt_whose_prefix_is_being_loaded_waits
 * 28 -> a_sequence_that_waits_for_a_prefix_lets_others_pass
 * 29 -> a_step_tries_to_admit_at_most_64_sequences
 * 30 -> a_step_that_has_preempted_admits_no_more
 * 31 -> the_last_token_waits_for_its_grammar_mask
 * 32 -> a_single_step_prompt_waits_for_its_grammar_mask
 * 33 -> pinned_blocks_are_unpinned_one_by_one_before_a_preemption
 * 34 -> the_last_running_sequence_is_preempted
 * 35 -> a_preempted_sequence_loses_row_and_blocks_and_waits
 * 36 -> a_preempted_sequence_returns_its_budget
 * 37 -> hashed_blocks_of_a_preempted_sequence_stay_cached
 * 38 -> a_lookahead_step_has_one_token_of_each_sequence
 * 39 -> no_lookahead_if_a_running_sequence_is_not_in_flight
 * 40 -> no_lookahead_while_a_sequence_waits_that_may_fit
 * 41 -> at_most_32_lookahead_steps_in_a_row_while_a_sequence_waits
 * 42 -> no_lookahead_without_a_free_block
 * 43 -> no_lookahead_that_completes_a_chunk_of_a_recurrent_state
 * 44 -> tokens_of_an_image_wait_for_its_rows
 * 45 -> a_chunk_does_not_end_inside_a_whole_image
 * 46 -> drafts_and_max_prefill_leave_budget_for_a_whole_image */
#include "sched_queue.h"

#include "backend/kernel_args.h"

/* Constants of sched.c. */
enum { LONG_PROMPT = 4, MAX_TRIES = 64, MAX_AHEAD = 32, MAX_FED = 32 };

static pi__matcher *const some_matcher = (pi__matcher *) (void *) &(int) {0}; /* never dereferenced: see queue_ready */

/* Opens a queue with this many rows and blocks (0 = plenty). */
static void queue_open(queue *q, int32_t rows, int32_t n_blocks)
{
    queue_open_with(q, (queue_config) {.rows = rows, .n_blocks = n_blocks});
}

/* Makes a decoding sequence miss n tokens that its grammar forced. */
static void force_run(pi__seq *s, int32_t n)
{
    s->n_tokens = s->n_computed + n;
    s->n_ahead = n;
}

/* ------------------------------------------------------------------------------------------------- budget of a step */

static void a_step_mixes_prefill_and_decode(void **st)
{
    (void) st;
    queue q;
    queue_open(&q, 2, 0);
    pi__seq *a = queue_add_decoding(&q, 10), *b = queue_add(&q, 30);
    const pi__step_plan *p = pi__schedule(&q.sched, 64);
    assert_true(a->n_new == 1 && b->n_new == 30);
    assert_true(p->n_seqs == 2 && p->n_tokens == 31 && p->n_prefill == 30);
    queue_complete(&q, p);
    assert_true(a->n_computed == 11 && b->n_computed == 30);
    queue_close(&q);
}

static void a_step_computes_at_most_max_tokens_tokens(void **st)
{
    (void) st;
    queue q;
    queue_open(&q, 3, 0);
    for (int i = 0; i < 3; i++) queue_add(&q, 50);
    assert_int_equal(pi__schedule(&q.sched, 64)->n_tokens, 64);
    queue_close(&q);
}

/* Opens q with a sequence that decodes, after one in list order that misses 100 tokens. */
static void prefill_before_decode(queue *q, pi__seq **prefill, pi__seq **decode)
{
    queue_open_with(q, (queue_config) {.rows = 2, .by_priority = true});
    *decode = queue_add_decoding(q, 10);
    *prefill = queue_new(q, 110);
    (*prefill)->params.priority = -1;
    queue_put(q, *prefill);
    queue_step(q, 11);
    assert_true((*prefill)->n_computed == 10 && q->sched.running.head == *prefill);
}

static void a_sequence_with_one_uncomputed_token_is_decoding(void **st)
{
    (void) st;
    queue q;
    pi__seq *a, *b;
    prefill_before_decode(&q, &a, &b);
    pi__schedule(&q.sched, 1);
    assert_true(a->n_new == 0 && b->n_new == 1);
    b->n_tokens++; /* two uncomputed tokens: not decoding */
    pi__schedule(&q.sched, 1);
    assert_true(a->n_new == 1 && b->n_new == 0);
    queue_close(&q);
}

static void a_forced_run_of_up_to_32_tokens_is_decoding(void **st)
{
    (void) st;
    queue q;
    pi__seq *a, *b;
    prefill_before_decode(&q, &a, &b);
    force_run(b, MAX_AHEAD);
    pi__schedule(&q.sched, 40);
    assert_true(a->n_new == 40 - MAX_AHEAD && b->n_new == MAX_AHEAD);
    force_run(b, MAX_AHEAD + 1);
    pi__schedule(&q.sched, 40);
    assert_true(a->n_new == 40 && b->n_new == 0);
    queue_close(&q);
}

static void decoding_sequences_take_budget_first_in_list_order(void **st)
{
    (void) st;
    queue q;
    pi__seq *a, *b;
    prefill_before_decode(&q, &a, &b);
    pi__schedule(&q.sched, 16);
    assert_true(a->n_new == 15 && b->n_new == 1);
    queue_close(&q);
    queue_open(&q, 3, 0);
    pi__seq *s[3];
    for (int i = 0; i < 3; i++) s[i] = queue_add_decoding(&q, 10);
    pi__schedule(&q.sched, 2);
    assert_true(s[0]->n_new == 1 && s[1]->n_new == 1 && s[2]->n_new == 0);
    queue_close(&q);
}

static void drafts_take_budget_after_decoding_and_before_prefill(void **st)
{
    (void) st;
    queue q;
    pi__seq *a, *b;
    prefill_before_decode(&q, &a, &b);
    b->n_draft = 5;
    pi__schedule(&q.sched, 10);
    assert_true(b->n_new == 6 && a->n_new == 4);
    queue_close(&q);
    queue_open(&q, 2, 0);
    pi__seq *c = queue_add_decoding(&q, 10), *d = queue_add_decoding(&q, 10);
    c->n_draft = 5;
    pi__schedule(&q.sched, 4);
    assert_true(c->n_new == 3 && d->n_new == 1);
    queue_close(&q);
}

static void only_one_uncomputed_token_in_the_step_gets_drafts_verified(void **st)
{
    (void) st;
    queue q;
    queue_open(&q, 3, 0);
    pi__seq *one = queue_add_decoding(&q, 10), *run = queue_add_decoding(&q, 10), *late = queue_add_decoding(&q, 10);
    force_run(run, 3);
    one->n_draft = run->n_draft = late->n_draft = 4;
    late->matcher = some_matcher;
    q.masks_late = true;
    pi__schedule(&q.sched, 64);
    assert_int_equal(one->n_new, 5);
    assert_int_equal(run->n_new, 3);
    assert_int_equal(late->n_new, 0);
    late->matcher = NULL;
    queue_close(&q);
}

static void drafts_leave_min_prefill_tokens_of_the_budget(void **st)
{
    (void) st;
    queue q;
    queue_open_with(&q, (queue_config) {.min_prefill = 16});
    pi__seq *s = queue_add_decoding(&q, 10);
    s->n_draft = 8;
    pi__schedule(&q.sched, 20);
    assert_int_equal(s->n_new, 1 + 20 - 1 - 16);
    pi__schedule(&q.sched, 16);
    assert_int_equal(s->n_new, 1);
    queue_close(&q);
}

static void drafts_without_free_blocks_are_left_out(void **st)
{
    (void) st;
    queue q;
    queue_open(&q, 1, 1);
    pi__seq *s = queue_add_decoding(&q, QUEUE_BLOCK - 2);
    s->n_draft = 1; /* ends with the block */
    pi__schedule(&q.sched, 64);
    assert_int_equal(s->n_new, 2);
    s->n_draft = 2; /* needs a second one */
    pi__schedule(&q.sched, 64);
    assert_true(s->n_new == 1 && !s->n_preempted);
    queue_close(&q);
}

static void running_prefills_take_budget_before_admission(void **st)
{
    (void) st;
    queue q;
    queue_open_with(&q, (queue_config) {.rows = 2, .by_priority = true});
    pi__seq *a = queue_add(&q, 100);
    queue_step(&q, 20);
    pi__seq *urgent = queue_new(&q, 10);
    urgent->params.priority = -1;
    queue_put(&q, urgent);
    pi__schedule(&q.sched, 64);
    assert_true(a->n_new == 64 && urgent->row < 0);
    queue_close(&q);
}

static void waiting_sequences_are_admitted_last_while_budget_remains(void **st)
{
    (void) st;
    queue q;
    queue_open(&q, 4, 0);
    pi__seq *a = queue_add_decoding(&q, 10);
    pi__seq *b = queue_add(&q, 59), *c = queue_add(&q, 10), *d = queue_add(&q, 10);
    pi__schedule(&q.sched, 64);
    assert_true(a->n_new == 1 && b->n_new == 59 && c->n_new == 4 && d->row < 0);
    queue_close(&q);
}

static void budget_left_extends_chunks(void **st)
{
    (void) st;
    queue q;
    queue_open(&q, 2, 0);
    pi__seq *a = queue_add(&q, LONG_PROMPT * 64 + 1), *b = queue_add(&q, 10);
    pi__schedule(&q.sched, 64);
    assert_true(b->n_new == 10 && a->n_new == 54); /* half, and what b has left */
    queue_close(&q);
}

static void extending_a_chunk_preempts_nothing(void **st)
{
    (void) st;
    queue q;
    queue_open(&q, 1, 0);
    pi__seq *a = queue_add(&q, 64 + LONG_PROMPT * 64 + 1);
    queue_step(&q, 64);
    queue_add(&q, 10); /* waits for the row */
    queue_leave_blocks(&q, 2);
    pi__schedule(&q.sched, 64);
    assert_true(a->n_new == 32 && a->row >= 0 && !q.stats.n_preempted);
    queue_close(&q);
}

/* --------------------------------------------------------------------------------------------------- prefill chunks */

static void a_prefill_takes_all_of_the_remaining_budget(void **st)
{
    (void) st;
    queue q;
    queue_open(&q, 2, 0);
    queue_add_decoding(&q, 10);
    pi__seq *a = queue_add(&q, 200);
    pi__schedule(&q.sched, 64);
    assert_int_equal(a->n_new, 63);
    queue_close(&q);
}

static void a_long_prefill_takes_half_of_the_budget_if_others_wait(void **st)
{
    (void) st;
    for (int32_t over = 0; over < 2; over++) {
        queue q;
        queue_open(&q, 2, 0);
        pi__seq *a = queue_add(&q, LONG_PROMPT * 64 + over), *b = queue_add(&q, 200);
        pi__schedule(&q.sched, 64);
        assert_int_equal(a->n_new, over ? 32 : 64);
        assert_int_equal(b->n_new, over ? 32 : 0);
        queue_close(&q);
    }
    queue q;
    queue_open(&q, 1, 0);
    pi__seq *alone = queue_add(&q, LONG_PROMPT * 64 + 1);
    pi__schedule(&q.sched, 64);
    assert_int_equal(alone->n_new, 64);
    queue_close(&q);
}

static void max_prefill_limits_a_step_that_decodes(void **st)
{
    (void) st;
    for (int32_t min_prefill = 0; min_prefill <= 16; min_prefill += 16) {
        queue q;
        queue_open_with(&q, (queue_config) {.rows = 3, .min_prefill = min_prefill});
        pi__seq *decode = queue_add_decoding(&q, 10), *a = queue_add(&q, 200), *b = queue_add(&q, 200);
        q.sched.max_prefill = 10;
        const pi__step_plan *p = pi__schedule(&q.sched, 64);
        assert_int_equal(p->n_prefill, min_prefill ? min_prefill : 10);
        assert_true(decode->n_new == 1 && a->n_new == p->n_prefill && b->row < 0);
        queue_end(&q, decode);
        assert_int_equal(pi__schedule(&q.sched, 64)->n_prefill, 64); /* this step does not decode */
        queue_close(&q);
    }
}

static void a_chunk_in_the_sparse_span_ends_at_a_sparse_block(void **st)
{
    (void) st;
    queue q;
    queue_open(&q, 1, 0);
    pi__seq *s = queue_new(&q, 500);
    s->sparse = (pi__sparse_span) {128, 384, 128};
    queue_put(&q, s);
    const struct { int32_t budget, n_new; } step[] = {
        {100, 100}, /* before the span, 0..100 */
        {150, 28},  /* to its first block, 100..128: 250 is inside a block */
        {127, 0},   /* less than one block */
        {255, 128}, /* 128..256 */
        {130, 130}, /* 256..386, after the span */
        {50, 50},
    };
    for (size_t i = 0; i < sizeof step / sizeof *step; i++) {
        const pi__step_plan *p = pi__schedule(&q.sched, step[i].budget);
        assert_int_equal(s->n_new, step[i].n_new);
        queue_complete(&q, p);
    }
    queue_close(&q);
}

static void a_single_step_prompt_needs_budget_for_all_of_it(void **st)
{
    (void) st;
    queue q;
    queue_open(&q, 1, 0);
    pi__seq *s = queue_new(&q, 50);
    s->whole = true;
    queue_put(&q, s);
    assert_int_equal(pi__schedule(&q.sched, 49)->n_seqs, 0);
    assert_int_equal(s->row, -1);
    pi__schedule(&q.sched, 50);
    assert_int_equal(s->n_new, 50);
    queue_close(&q);
}

/* ---------------------------------------------------------------------------------------------- order of admission */

/* Adds a request of 4 tokens that has waited for so many ms. */
static pi__seq *add_waited(queue *q, int32_t priority, uint32_t tenant, double waited)
{
    pi__seq *s = queue_new(q, 4);
    s->params.priority = priority;
    s->params.tenant = tenant;
    s->t.submit -= waited;
    return queue_put(q, s);
}

/* Returns the sequence that is admitted to the only row. */
static pi__seq *queue_next(queue *q)
{
    pi__schedule(&q->sched, 64);
    assert_int_equal(q->sched.running.n, 1);
    return q->sched.running.head;
}

static void lower_priority_goes_first(void **st)
{
    (void) st;
    for (int kind = 0; kind < 4; kind++) {
        const int policy = kind % 2;
        const uint32_t tenant = kind / 2 ? 1 : 0; /* of b: with a second tenant, the order is not the list's */
        queue q;
        queue_open_with(&q, (queue_config) {.by_priority = policy == 1});
        pi__seq *a = add_waited(&q, 5, 0, 0), *b = add_waited(&q, -3, tenant, 0), *c = add_waited(&q, 0, 0, 0);
        pi__seq *fcfs[] = {a, b, c}, *priority[] = {b, c, a};
        for (int i = 0; i < 3; i++) {
            pi__seq *s = queue_next(&q);
            assert_ptr_equal(s, (policy ? priority : fcfs)[i]);
            queue_end(&q, s);
        }
        queue_close(&q);
    }
}

static void equals_go_in_order_of_arrival(void **st)
{
    (void) st;
    for (int policy = 0; policy < 2; policy++) {
        queue q;
        pi__seq *s[3];
        queue_open_with(&q, (queue_config) {.by_priority = policy == 1});
        for (int i = 0; i < 3; i++) s[i] = add_waited(&q, 1, 1, 0);
        add_waited(&q, 1, 2, 0); /* with a second tenant, the order is computed instead of the list's */
        for (int i = 0; i < 3; i++) {
            assert_ptr_equal(queue_next(&q), s[i]);
            queue_end(&q, s[i]);
        }
        queue_close(&q);
    }
}

/* More urgent requests keep coming. */
static void aged_requests_go_first(void **st)
{
    (void) st;
    queue q;
    queue_open_with(&q, (queue_config) {.by_priority = true, .max_wait_ms = 10000});
    pi__seq *late = add_waited(&q, 1000, 0, 10001), *later = add_waited(&q, 2000, 0, 10001);
    add_waited(&q, 1500, 0, 9000); /* not yet */
    for (int i = 0; i < 5; i++) add_waited(&q, -1000, 0, 0);
    assert_ptr_equal(queue_next(&q), late);
    queue_end(&q, late);
    add_waited(&q, -1000, 0, 0);
    assert_ptr_equal(queue_next(&q), later);
    queue_end(&q, later);
    assert_int_equal(queue_next(&q)->params.priority, -1000);
    queue_close(&q);
    queue_open_with(&q, (queue_config) {.by_priority = true}); /* no aging */
    add_waited(&q, 1, 0, 1e9);
    pi__seq *urgent = add_waited(&q, 0, 0, 0);
    assert_ptr_equal(queue_next(&q), urgent);
    queue_close(&q);
}

/* An aged sequence that runs is not the first to lose its blocks. */
static void aged_requests_stay_in_front(void **st)
{
    (void) st;
    queue q;
    queue_open_with(&q, (queue_config) {.rows = 2, .by_priority = true, .max_wait_ms = 10000});
    pi__seq *old = add_waited(&q, 1000, 0, 10001), *urgent = add_waited(&q, 0, 0, 0);
    pi__schedule(&q.sched, 64);
    assert_true(q.sched.running.head == old && q.sched.running.tail == urgent);
    queue_close(&q);
}

/* One tenant has a hundred requests, another has three: these take every second row. */
static void tenants_with_fewer_running_sequences_go_first(void **st)
{
    (void) st;
    for (int policy = 0; policy < 2; policy++) {
        queue q;
        pi__seq *small[3];
        queue_open_with(&q, (queue_config) {.rows = 4, .by_priority = policy == 1});
        for (int i = 0; i < 100; i++) add_waited(&q, 0, 1, 0);
        for (int i = 0; i < 3; i++) small[i] = add_waited(&q, 0, 2, 0);
        pi__schedule(&q.sched, 64);
        assert_int_equal(q.sched.running.n, 4);
        assert_true(small[0]->row >= 0 && small[1]->row >= 0 && small[2]->row < 0);
        queue_close(&q);
    }
}

/* A tenant with running sequences waits for one that has none, but at most max_wait_ms. */
static void turns_count_running_sequences(void **st)
{
    (void) st;
    queue q;
    queue_open_with(&q, (queue_config) {.rows = 3, .max_wait_ms = 10000});
    add_waited(&q, 0, 1, 0);
    add_waited(&q, 0, 1, 0);
    pi__schedule(&q.sched, 64);
    assert_int_equal(q.sched.running.n, 2);
    pi__seq *first = add_waited(&q, 0, 1, 0), *other = add_waited(&q, 0, 2, 0);
    pi__schedule(&q.sched, 64);
    assert_true(other->row >= 0 && first->row < 0);
    queue_end(&q, other);
    first->t.submit -= 10001;
    other = add_waited(&q, 0, 2, 0);
    pi__schedule(&q.sched, 64);
    assert_true(first->row >= 0 && other->row < 0);
    queue_close(&q);
}

/* ----------------------------------------------------------------------------------------- conditions of admission */

static void a_sequence_waits_for_a_free_row(void **st)
{
    (void) st;
    queue q;
    queue_open(&q, 1, 0);
    pi__seq *a = queue_add(&q, 10), *b = queue_add(&q, 10);
    pi__schedule(&q.sched, 64);
    assert_true(a->row == 0 && b->row < 0);
    queue_end(&q, a);
    pi__schedule(&q.sched, 64);
    assert_int_equal(b->row, 0);
    queue_close(&q);
}

static void a_sequence_waits_for_blocks_for_all_of_its_tokens(void **st)
{
    (void) st;
    for (int32_t over = 0; over < 2; over++) {
        queue q;
        queue_open(&q, 1, 4);
        pi__seq *s = queue_add(&q, 4 * QUEUE_BLOCK + over);
        pi__schedule(&q.sched, 16); /* this chunk alone would fit */
        assert_int_equal(s->row, over ? -1 : 0);
        queue_close(&q);
    }
}

/* A window of 16 tokens and a chunk of 16 touch at most 3 blocks of 16; a chunk of 64 touches 6. */
static void a_window_needs_blocks_for_one_chunk(void **st)
{
    (void) st;
    queue q;
    queue_open_with(&q, (queue_config) {.other = {"window", QUEUE_BLOCK, 16, 5, false, 0}});
    pi__seq *s = queue_add(&q, 200);
    pi__schedule(&q.sched, 64);
    assert_int_equal(s->row, -1);
    pi__schedule(&q.sched, 16);
    assert_int_equal(s->row, 0);
    queue_close(&q);
}

static void a_sequence_without_room_ends_the_admission(void **st)
{
    (void) st;
    queue q;
    queue_open(&q, 3, 4);
    queue_add_decoding(&q, 20);
    pi__seq *large = queue_add(&q, 50), *small = queue_add(&q, 10);
    pi__schedule(&q.sched, 128);
    assert_true(large->row < 0 && small->row < 0); /* small has row and blocks, but is behind large */
    queue_end(&q, large);
    pi__schedule(&q.sched, 128);
    assert_int_equal(small->n_new, 10);
    queue_close(&q);
}

static void a_single_step_prompt_over_the_budget_ends_the_admission(void **st)
{
    (void) st;
    queue q;
    queue_open(&q, 2, 0);
    pi__seq *s = queue_new(&q, 50);
    s->whole = true;
    queue_put(&q, s);
    pi__seq *small = queue_add(&q, 10);
    assert_int_equal(pi__schedule(&q.sched, 49)->n_seqs, 0);
    assert_true(s->row < 0 && small->row < 0);
    queue_close(&q);
}

static void a_prompt_whose_prefix_is_being_computed_waits(void **st)
{
    (void) st;
    queue q;
    queue_open(&q, 2, 0);
    pi__seq *a = queue_add_cached(&q, 100, NULL);
    queue_step(&q, 32);
    pi__seq *b = queue_add_cached(&q, 100, a);
    const pi__step_plan *p = pi__schedule(&q.sched, 128);
    assert_true(a->n_new == 68 && b->row < 0 && p->n_tokens == 68); /* the cache has 32 tokens, a computes 96 */
    queue_complete(&q, p);
    pi__schedule(&q.sched, 128);
    assert_true(b->n_cached == 96 && b->n_new == 4);
    queue_close(&q);
}

static void a_prompt_whose_prefix_is_being_loaded_waits(void **st)
{
    (void) st;
    queue q;
    queue_open(&q, 1, 0);
    pi__seq *s = queue_add_cached(&q, 10, NULL);
    q.tiers_load = true;
    pi__schedule(&q.sched, 64);
    assert_int_equal(s->row, -1);
    q.tiers_load = false;
    pi__schedule(&q.sched, 64);
    assert_int_equal(s->n_new, 10);
    queue_close(&q);
}

static void a_sequence_that_waits_for_a_prefix_lets_others_pass(void **st)
{
    (void) st;
    queue q;
    queue_open(&q, 3, 0);
    pi__seq *a = queue_add_cached(&q, 100, NULL);
    queue_step(&q, 32);
    pi__seq *b = queue_add_cached(&q, 100, a), *c = queue_add_cached(&q, 10, NULL);
    pi__schedule(&q.sched, 128);
    assert_true(a->n_new == 68 && b->row < 0 && c->n_new == 10);
    queue_end(&q, a);
    q.tiers_load = true; /* the same while the tiers load the prefix of b */
    pi__seq *d = queue_add(&q, 10);
    pi__schedule(&q.sched, 128);
    assert_true(b->row < 0 && d->n_new == 10);
    queue_close(&q);
}

static void a_step_tries_to_admit_at_most_64_sequences(void **st)
{
    (void) st;
    for (int n = MAX_TRIES - 1; n <= MAX_TRIES; n++) {
        queue q;
        queue_open(&q, 1, 0);
        for (int i = 0; i < n; i++) queue_add_cached(&q, 10, NULL);
        pi__seq *last = queue_add(&q, 10);
        q.tiers_load = true; /* for all but the last, whose blocks are not shared */
        pi__schedule(&q.sched, 64);
        assert_int_equal(last->row, n == MAX_TRIES ? -1 : 0);
        queue_close(&q);
    }
}

/* After the preemption of b, one block is free, and it would suffice for c. */
static void a_step_that_has_preempted_admits_no_more(void **st)
{
    (void) st;
    queue q;
    queue_open_with(&q, (queue_config) {.rows = 3, .by_priority = true});
    pi__seq *a = queue_add_decoding(&q, QUEUE_BLOCK - 1), *b = queue_add_decoding(&q, QUEUE_BLOCK + 1);
    pi__seq *c = queue_new(&q, 4);
    queue_leave_blocks(&q, 0);
    c->params.priority = -1; /* before b */
    queue_put(&q, c);
    pi__schedule(&q.sched, 64);
    assert_true(a->n_new == 1 && b->n_preempted == 1 && b->row < 0 && c->row < 0);
    assert_int_equal(pi__block_available(&q.cache.group[0].pool), 1);
    pi__schedule(&q.sched, 64);
    assert_int_equal(c->n_new, 4);
    queue_close(&q);
}

/* --------------------------------------------------------------------------------------------------------- grammars */

static void the_last_token_waits_for_its_grammar_mask(void **st)
{
    (void) st;
    queue q;
    queue_open(&q, 1, 0);
    pi__seq *s = queue_new(&q, 20);
    s->matcher = some_matcher;
    queue_put(&q, s);
    q.masks_late = true;
    const pi__step_plan *p = pi__schedule(&q.sched, 64);
    assert_int_equal(s->n_new, 19);
    queue_complete(&q, p);
    pi__schedule(&q.sched, 64);
    assert_int_equal(s->n_new, 0);
    q.masks_late = false;
    pi__schedule(&q.sched, 64);
    assert_int_equal(s->n_new, 1);
    queue_close(&q);
}

static void a_single_step_prompt_waits_for_its_grammar_mask(void **st)
{
    (void) st;
    queue q;
    queue_open(&q, 1, 0);
    pi__seq *s = queue_new(&q, 20);
    s->matcher = some_matcher;
    s->whole = true;
    queue_put(&q, s);
    q.masks_late = true;
    pi__schedule(&q.sched, 64);
    assert_int_equal(s->n_new, 0);
    q.masks_late = false;
    pi__schedule(&q.sched, 64);
    assert_int_equal(s->n_new, 20);
    queue_close(&q);
}

/* ------------------------------------------------------------------------------------------------------- preemption */

/* Opens q with two decoding sequences in a pool of n_blocks blocks. The next token of a needs another block. */
static void two_that_decode(queue *q, int32_t n_blocks, pi__seq **a, pi__seq **b)
{
    queue_open(q, 3, n_blocks);
    *a = queue_add_decoding(q, QUEUE_BLOCK - 1);
    *b = queue_add_decoding(q, QUEUE_BLOCK - 8);
    assert_true((*a)->n_computed == QUEUE_BLOCK && (*b)->n_computed == QUEUE_BLOCK - 8);
}

static void pinned_blocks_are_unpinned_one_by_one_before_a_preemption(void **st)
{
    (void) st;
    queue q;
    pi__seq *a, *b;
    two_that_decode(&q, 5, &a, &b);
    queue_pin_blocks(&q, 3);
    pi__schedule(&q.sched, 64);
    assert_true(a->n_new == 1 && b->n_new == 1 && !q.stats.n_preempted);
    assert_true(q.n_yields == 1 && q.n_pinned == 2);
    queue_close(&q);
}

static void the_last_running_sequence_is_preempted(void **st)
{
    (void) st;
    queue q;
    pi__seq *a, *b;
    two_that_decode(&q, 2, &a, &b); /* a needs a block */
    pi__schedule(&q.sched, 64);
    assert_true(a->n_new == 1 && b->row < 0 && b->n_preempted == 1);
    queue_close(&q);
    two_that_decode(&q, 3, &a, &b);
    force_run(b, 9); /* b needs a block, and is the last itself */
    queue_leave_blocks(&q, 1);
    pi__schedule(&q.sched, 64);
    assert_true(a->n_new == 1 && b->row < 0 && b->n_preempted == 1 && !a->n_preempted);
    queue_close(&q);
}

static void a_preempted_sequence_loses_row_and_blocks_and_waits(void **st)
{
    (void) st;
    queue q;
    pi__seq *a, *b;
    two_that_decode(&q, 2, &a, &b);
    const int32_t row = b->row;
    pi__schedule(&q.sched, 64);
    assert_true(b->row < 0 && !b->n_computed && !b->n_new && q.sched.row_seq[row] == NULL);
    assert_true(q.cache.seq[row].n_blocks[0] == 0 && q.cache.seq[a->row].n_blocks[0] == 2);
    assert_true(q.sched.waiting.head == b && q.sched.waiting.n == 1 && q.sched.running.n == 1);
    queue_close(&q);
}

/* b takes one token of the budget of 12, then a needs its block: a has 11 tokens, and the one that b returns. */
static void a_preempted_sequence_returns_its_budget(void **st)
{
    (void) st;
    queue q;
    queue_open(&q, 2, 0);
    pi__seq *a = queue_add(&q, 100), *b = queue_add(&q, 10);
    queue_step(&q, 24);
    assert_true(a->n_computed == 14 && b->n_computed == 10 && b->n_tokens == 11);
    queue_leave_blocks(&q, 0);
    const pi__step_plan *p = pi__schedule(&q.sched, 12);
    assert_true(b->n_preempted == 1 && a->n_new == 12 && p->n_tokens == 12);
    queue_close(&q);
}

static void hashed_blocks_of_a_preempted_sequence_stay_cached(void **st)
{
    (void) st;
    queue q;
    queue_open(&q, 2, 4);
    pi__seq *a = queue_add_decoding(&q, QUEUE_BLOCK - 1), *b = queue_add_cached(&q, 2 * QUEUE_BLOCK + 1, NULL);
    queue_step(&q, 64);
    assert_int_equal(b->n_computed, 2 * QUEUE_BLOCK + 1);
    pi__schedule(&q.sched, 64); /* a gets the block that b had not filled */
    assert_true(b->row < 0 && a->n_new == 1);
    queue_end(&q, a);
    pi__schedule(&q.sched, 64);
    assert_true(b->n_found == 2 * QUEUE_BLOCK && b->n_new == 2);
    queue_close(&q);
}

/* -------------------------------------------------------------------------------------------------- lookahead steps */

static void a_lookahead_step_has_one_token_of_each_sequence(void **st)
{
    (void) st;
    queue q;
    queue_open(&q, 3, 0);
    pi__seq *a = queue_add_decoding(&q, 5), *ends = queue_add_decoding(&q, 5), *b = queue_add_decoding(&q, 5);
    ends->max_total = ends->n_tokens + 1; /* the step in flight gives its last token */
    assert_int_equal(pi__schedule(&q.sched, 64)->n_seqs, 3);
    const pi__step_plan *p = pi__schedule_ahead(&q.sched);
    assert_true(p->ahead && p->n_seqs == 2 && p->n_tokens == 2 && p->n_prefill == 0);
    assert_true(p->seq[0] == a && p->from[0] == 0 && a->n_new == 1);
    assert_true(p->seq[1] == b && p->from[1] == 2 && b->n_new == 1);
    queue_close(&q);
}

static void no_lookahead_if_a_running_sequence_is_not_in_flight(void **st)
{
    (void) st;
    queue q;
    queue_open(&q, 2, 0);
    queue_add_decoding(&q, 5);
    queue_add_decoding(&q, 5);
    assert_int_equal(pi__schedule(&q.sched, 1)->n_seqs, 1);
    assert_int_equal(pi__schedule_ahead(&q.sched)->n_seqs, 0);
    assert_int_equal(pi__schedule(&q.sched, 2)->n_seqs, 2);
    assert_int_equal(pi__schedule_ahead(&q.sched)->n_seqs, 2);
    queue_close(&q);
}

static void no_lookahead_while_a_sequence_waits_that_may_fit(void **st)
{
    (void) st;
    queue q;
    queue_open(&q, 1, 0);
    queue_add_decoding(&q, 5);
    pi__schedule(&q.sched, 64);
    queue_add(&q, 5); /* not tried yet */
    assert_int_equal(pi__schedule_ahead(&q.sched)->n_seqs, 0);
    pi__schedule(&q.sched, 64); /* no row for it */
    assert_int_equal(pi__schedule_ahead(&q.sched)->n_seqs, 1);
    queue_close(&q);
}

static void at_most_32_lookahead_steps_in_a_row_while_a_sequence_waits(void **st)
{
    (void) st;
    for (int waits = 0; waits < 2; waits++) {
        queue q;
        queue_open(&q, 1, 0);
        queue_add_decoding(&q, 5);
        if (waits) queue_add(&q, 5);
        const pi__step_plan *now = pi__schedule(&q.sched, 64);
        for (int i = 0; i < MAX_FED; i++) {
            const pi__step_plan *next = pi__schedule_ahead(&q.sched);
            assert_int_equal(next->n_seqs, 1);
            queue_complete(&q, now);
            now = next;
        }
        assert_int_equal(pi__schedule_ahead(&q.sched)->n_seqs, !waits);
        queue_close(&q);
    }
}

static void no_lookahead_without_a_free_block(void **st)
{
    (void) st;
    for (int32_t n_blocks = 1; n_blocks <= 2; n_blocks++) {
        queue q;
        queue_open(&q, 1, n_blocks);
        pi__seq *s = queue_add_decoding(&q, QUEUE_BLOCK - 1);
        pi__schedule(&q.sched, 64); /* the last token of the block; the lookahead step needs the next block */
        assert_int_equal(pi__schedule_ahead(&q.sched)->n_seqs, n_blocks == 2);
        assert_int_equal(s->n_preempted, 0);
        queue_close(&q);
    }
}

static void no_lookahead_that_completes_a_chunk_of_a_recurrent_state(void **st)
{
    (void) st;
    for (int32_t n = 4; n < 4 + PI__STATE_CHUNK; n++) {
        queue q;
        queue_open_with(&q, (queue_config) {.other = {"recurrent", QUEUE_BLOCK, 0, 4, true, 0}});
        pi__seq *s = queue_add_decoding(&q, n);
        pi__schedule(&q.sched, 64);
        const bool completes = (s->n_tokens + 1) % PI__STATE_CHUNK == 0;
        assert_int_equal(pi__schedule_ahead(&q.sched)->n_seqs, !completes);
        queue_close(&q);
    }
}

/* Adds a sequence of n tokens with images of tokens 20..29 and 30..49, which see each other if `whole`. */
static pi__seq *add_with_images(queue *q, int32_t n, bool whole)
{
    static pi__block_media at[2] = {{20, 10, {{1}}}, {30, 20, {{2}}}};
    static pi__seq_image image[2] = {{.entry = -1}, {.entry = -1}};
    pi__seq *s = queue_new(q, n);
    s->images = (pi__seq_images) {2, at, image};
    s->whole_images = whole;
    return queue_put(q, s);
}

static void tokens_of_an_image_wait_for_its_rows(void **st)
{
    (void) st;
    queue q;
    queue_open(&q, 2, 0);
    q.rows_until = 20;
    pi__seq *s = add_with_images(&q, 100, false), *other = queue_add(&q, 10);
    queue_step(&q, 64);
    assert_true(s->n_computed == 20 && other->n_computed == 10);
    queue_step(&q, 64);
    assert_true(s->n_new == 0 && s->row >= 0 && other->n_new == 1);
    q.rows_until = 30;
    queue_step(&q, 64);
    assert_int_equal(s->n_computed, 30);
    q.rows_until = QUEUE_CTX;
    queue_step(&q, 50);
    assert_int_equal(s->n_computed, 79);
    queue_close(&q);
}

static void a_chunk_does_not_end_inside_a_whole_image(void **st)
{
    (void) st;
    static const int32_t budget[] = {5, 16, 20, 25, 29, 30, 35, 49, 50, 64};
    for (int i = 0; i < 10; i++) {
        for (int whole = 0; whole < 2; whole++) {
            queue q;
            queue_open(&q, 1, 0);
            pi__seq *s = add_with_images(&q, 100, whole);
            const int32_t n = budget[i], cut = n > 30 && n < 50 ? 30 : n > 20 && n < 30 ? 20 : n;
            queue_step(&q, n);
            assert_int_equal(s->n_computed, whole ? cut : n);
            queue_close(&q);
        }
    }
    queue q; /* an image that does not fit the rest of a step is computed in the next one */
    queue_open(&q, 2, 0);
    queue_add(&q, 9);
    pi__seq *s = add_with_images(&q, 60, true);
    queue_step(&q, 55);
    assert_int_equal(s->n_computed, 30);
    queue_close(&q);
    queue_open(&q, 2, 0);
    s = add_with_images(&q, 60, true);
    for (int32_t at = 0; at < 30; at = s->n_computed) queue_step(&q, 15), assert_true(s->n_computed > at);
    queue_step(&q, 15);
    assert_true(s->n_computed == 30 && s->row >= 0);
    queue_step(&q, 20);
    assert_int_equal(s->n_computed, 50);
    queue_close(&q);
}

static void drafts_and_max_prefill_leave_budget_for_a_whole_image(void **st)
{
    (void) st;
    queue q;
    queue_open(&q, 2, 0);
    pi__seq *decode = queue_add_decoding(&q, 10), *s = add_with_images(&q, 60, true);
    q.sched.max_prefill = 7;
    while (s->n_computed < 30) queue_step(&q, 24);
    decode->n_draft = 8;
    for (int32_t i = 0; i < 8; i++) decode->tokens[decode->n_tokens + i] = 5;
    pi__schedule(&q.sched, 24);
    assert_true(decode->n_new == 4 && s->n_new == 20);
    queue_close(&q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_of_an_image_wait_for_its_rows),
        cmocka_unit_test(a_chunk_does_not_end_inside_a_whole_image),
        cmocka_unit_test(drafts_and_max_prefill_leave_budget_for_a_whole_image),
        cmocka_unit_test(a_step_mixes_prefill_and_decode),
        cmocka_unit_test(a_step_computes_at_most_max_tokens_tokens),
        cmocka_unit_test(a_sequence_with_one_uncomputed_token_is_decoding),
        cmocka_unit_test(a_forced_run_of_up_to_32_tokens_is_decoding),
        cmocka_unit_test(decoding_sequences_take_budget_first_in_list_order),
        cmocka_unit_test(drafts_take_budget_after_decoding_and_before_prefill),
        cmocka_unit_test(only_one_uncomputed_token_in_the_step_gets_drafts_verified),
        cmocka_unit_test(drafts_leave_min_prefill_tokens_of_the_budget),
        cmocka_unit_test(drafts_without_free_blocks_are_left_out),
        cmocka_unit_test(running_prefills_take_budget_before_admission),
        cmocka_unit_test(waiting_sequences_are_admitted_last_while_budget_remains),
        cmocka_unit_test(budget_left_extends_chunks),
        cmocka_unit_test(extending_a_chunk_preempts_nothing),
        cmocka_unit_test(a_prefill_takes_all_of_the_remaining_budget),
        cmocka_unit_test(a_long_prefill_takes_half_of_the_budget_if_others_wait),
        cmocka_unit_test(max_prefill_limits_a_step_that_decodes),
        cmocka_unit_test(a_chunk_in_the_sparse_span_ends_at_a_sparse_block),
        cmocka_unit_test(a_single_step_prompt_needs_budget_for_all_of_it),
        cmocka_unit_test(lower_priority_goes_first),
        cmocka_unit_test(tenants_with_fewer_running_sequences_go_first),
        cmocka_unit_test(turns_count_running_sequences),
        cmocka_unit_test(equals_go_in_order_of_arrival),
        cmocka_unit_test(aged_requests_go_first),
        cmocka_unit_test(aged_requests_stay_in_front),
        cmocka_unit_test(a_sequence_waits_for_a_free_row),
        cmocka_unit_test(a_sequence_waits_for_blocks_for_all_of_its_tokens),
        cmocka_unit_test(a_window_needs_blocks_for_one_chunk),
        cmocka_unit_test(a_sequence_without_room_ends_the_admission),
        cmocka_unit_test(a_single_step_prompt_over_the_budget_ends_the_admission),
        cmocka_unit_test(a_prompt_whose_prefix_is_being_computed_waits),
        cmocka_unit_test(a_prompt_whose_prefix_is_being_loaded_waits),
        cmocka_unit_test(a_sequence_that_waits_for_a_prefix_lets_others_pass),
        cmocka_unit_test(a_step_tries_to_admit_at_most_64_sequences),
        cmocka_unit_test(a_step_that_has_preempted_admits_no_more),
        cmocka_unit_test(the_last_token_waits_for_its_grammar_mask),
        cmocka_unit_test(a_single_step_prompt_waits_for_its_grammar_mask),
        cmocka_unit_test(pinned_blocks_are_unpinned_one_by_one_before_a_preemption),
        cmocka_unit_test(the_last_running_sequence_is_preempted),
        cmocka_unit_test(a_preempted_sequence_loses_row_and_blocks_and_waits),
        cmocka_unit_test(a_preempted_sequence_returns_its_budget),
        cmocka_unit_test(hashed_blocks_of_a_preempted_sequence_stay_cached),
        cmocka_unit_test(a_lookahead_step_has_one_token_of_each_sequence),
        cmocka_unit_test(no_lookahead_if_a_running_sequence_is_not_in_flight),
        cmocka_unit_test(no_lookahead_while_a_sequence_waits_that_may_fit),
        cmocka_unit_test(at_most_32_lookahead_steps_in_a_row_while_a_sequence_waits),
        cmocka_unit_test(no_lookahead_without_a_free_block),
        cmocka_unit_test(no_lookahead_that_completes_a_chunk_of_a_recurrent_state),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
