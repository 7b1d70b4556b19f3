/* Data files of tasks (see choices.h).
 *
 * Tasks have llama-perplexity's order, so that scores on a part of a file are comparable. Random numbers come from a
 * Mersenne Twister (MT19937) with seed 1. They become indices by the algorithm of the C++ library that
 * llama-perplexity is built with. */
#include "choices.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char no_memory[] = "out of memory";

void choices_free(choice_list *l)
{
    for (size_t i = 0; i < l->n; i++) {
        for (size_t k = 0; k < l->task[i].n; k++) free(l->task[i].choice[k].text);
        free(l->task[i].choice);
    }
    free(l->task);
    *l = (choice_list) {0};
}

/* -------------------------------------------------------------------------------------------------- random numbers */

enum { TWIST = 624, AHEAD = 397 };
typedef struct twister {
    uint32_t s[TWIST];
    size_t at; /* consumed numbers of s */
} twister;

static void twister_start(twister *t, uint32_t seed)
{
    t->s[0] = seed;
    for (uint32_t i = 1; i < TWIST; i++) t->s[i] = 1812433253u * (t->s[i - 1] ^ t->s[i - 1] >> 30) + i;
    t->at = TWIST;
}

static uint32_t twister_next(twister *t)
{
    for (size_t i = 0; t->at == TWIST && i < TWIST; i++) {
        uint32_t y = (t->s[i] & 0x80000000u) | (t->s[(i + 1) % TWIST] & 0x7FFFFFFFu);
        t->s[i] = t->s[(i + AHEAD) % TWIST] ^ y >> 1 ^ (y & 1 ? 0x9908B0DFu : 0);
    }
    t->at %= TWIST;
    uint32_t y = t->s[t->at++];
    y ^= y >> 11;
    y ^= y << 7 & 0x9D2C5680u;
    y ^= y << 15 & 0xEFC60000u;
    return y ^ y >> 18;
}

/* std::uniform_int_distribution on [0, n): the upper half of a product; redrawn where the result would be biased. */
static size_t below(twister *t, uint32_t n)
{
    uint64_t product = (uint64_t) twister_next(t) * n;
    uint32_t least = (0u - n) % n;
    while ((uint32_t) product < least) product = (uint64_t) twister_next(t) * n;
    return (size_t) (product >> 32);
}

/* Returns an index below n, computed in float arithmetic. */
static size_t below_float(twister *t, size_t n)
{
    size_t i = (size_t) (0x1p-32f * (float) twister_next(t) * (float) n);
    return i < n ? i : n - 1;
}

/* ------------------------------------------------------------------------------------------------------------ text */

typedef struct span {
    const char *p;
    size_t n;
} span;

/* Takes the next line from *rest; returns false at the end. A final newline does not start another line. */
static bool next_line(span *rest, span *line)
{
    if (!rest->n) return false;
    const char *nl = memchr(rest->p, '\n', rest->n);
    line->p = rest->p;
    line->n = nl ? (size_t) (nl - rest->p) : rest->n;
    size_t used = line->n + (nl != NULL);
    rest->p += used;
    rest->n -= used;
    return true;
}

static bool add_choice(choice_task *t, const span *part, size_t n_parts, size_t n_head_parts, bool right)
{
    choice *k = &t->choice[t->n];
    size_t n = 0;
    for (size_t i = 0; i < n_parts; i++) n += part[i].n;
    *k = (choice) {.text = malloc(n + 1), .right = right};
    if (!k->text) return false;
    t->n++;
    for (size_t i = 0; i < n_parts; i++) {
        memcpy(k->text + k->n, part[i].p, part[i].n);
        k->n += part[i].n;
        if (i < n_head_parts) k->n_head = k->n;
    }
    k->text[k->n] = 0;
    return true;
}

/* Appends a task with capacity for n choices; NULL = out of memory. */
static choice_task *add_task(choice_list *l, size_t n)
{
    choice_task *t = &l->task[l->n];
    *t = (choice_task) {.choice = calloc(n, sizeof *t->choice)};
    if (!t->choice) return NULL;
    l->n++;
    return t;
}

/* Returns the indices 0 to n-1; NULL = out of memory. */
static size_t *all_indices(size_t n)
{
    size_t *left = malloc((n + 1) * sizeof *left);
    for (size_t i = 0; left && i < n; i++) left[i] = i;
    return left;
}

/* Returns the integer at the start of a text; -1 = none. */
static long number(span s)
{
    size_t i = 0;
    long v = 0;
    while (i < s.n && (s.p[i] == ' ' || s.p[i] == '\t')) i++;
    if (i == s.n || s.p[i] < '0' || s.p[i] > '9') return -1;
    for (; i < s.n && s.p[i] >= '0' && s.p[i] <= '9' && v < 1000; i++) v = v * 10 + (s.p[i] - '0');
    return v;
}

static const char *finish(choice_list *l, const char *what)
{
    if (what) choices_free(l);
    return what;
}

/* ------------------------------------------------------------------------------------------------------- HellaSwag */

static const char *hellaswag_task(choice_list *l, const span *line, size_t which, char msg[160])
{
    long gold = number(line[1]);
    choice_task *t = add_task(l, 4);
    if (!t) return no_memory;
    snprintf(msg, 160, "line %zu: expected the number of an ending, 0 to 3", which * 6 + 2);
    if (gold < 0 || gold > 3) return msg;
    for (size_t i = 0; i < 4; i++) {
        const span part[] = {line[0], {" ", 1}, line[2 + i]};
        if (!add_choice(t, part, 3, 3, (long) i == gold)) return no_memory;
    }
    return NULL;
}

const char *choices_hellaswag(const char *file, size_t n, size_t limit, choice_list *out, char msg[160])
{
    span rest = {file, n}, line;
    size_t n_lines = 0;
    *out = (choice_list) {0};
    while (next_line(&rest, &line)) n_lines++;
    size_t n_left = out->n_file = n_lines / 6;
    if (!n_lines) return "the file has no tasks";
    snprintf(msg, 160, "%zu lines are not a multiple of 6", n_lines);
    if (n_lines % 6 || n_left > UINT32_MAX) return msg;
    if (!limit || limit > n_left) limit = n_left;
    span *lines = malloc(n_lines * sizeof *lines);
    size_t *left = all_indices(n_left);
    out->task = calloc(limit, sizeof *out->task);
    const char *what = lines && left && out->task ? NULL : no_memory;
    rest = (span) {file, n};
    for (size_t i = 0; lines && i < n_lines; i++) next_line(&rest, &lines[i]);
    twister t;
    twister_start(&t, 1);
    for (size_t i = 0; !what && i < limit; i++) {
        size_t at = below(&t, (uint32_t) n_left), which = left[at];
        memmove(left + at, left + at + 1, (--n_left - at) * sizeof *left);
        what = hellaswag_task(out, lines + which * 6, which, msg);
    }
    free(lines);
    free(left);
    return finish(out, what);
}

/* ------------------------------------------------------------------------------------------------------ Winogrande */

/* Splits a line at its first four commas outside of quotes. */
static bool cut_csv(span line, span field[5])
{
    size_t n = 0, from = 0;
    bool quoted = false;
    for (size_t i = 0; i < line.n && n < 4; i++) {
        if (line.p[i] == '"') quoted = !quoted;
        if (line.p[i] != ',' || quoted) continue;
        field[n++] = (span) {line.p + from, i - from};
        from = i + 1;
    }
    field[4] = (span) {line.p + from, line.n - from};
    return n == 4;
}

/* Returns 1 if a task was added, 0 if the line is malformed, -1 if out of memory. */
static int winogrande_task(choice_list *l, span line)
{
    span field[5];
    if (!cut_csv(line, field)) return 0;
    span s = field[1];
    if (s.n >= 2 && s.p[0] == '"') s = (span) {s.p + 1, s.n - 2};
    const char *gap = s.n ? memchr(s.p, '_', s.n) : NULL;
    long answer = number(field[4]);
    if (!gap || answer < 1 || answer > 2) return 0;
    choice_task *t = add_task(l, 2);
    size_t before = (size_t) (gap - s.p);
    for (size_t i = 0; t && i < 2; i++) {
        const span part[] = {{s.p, before}, field[2 + i], {gap + 1, s.n - before - 1}};
        if (!add_choice(t, part, 3, 2, (long) i + 1 == answer)) return -1;
    }
    return t ? 1 : -1;
}

/* Selects `limit` tasks of l and moves them to the front. */
static const char *pick(choice_list *l, size_t limit)
{
    size_t n_left = l->n;
    if (!limit || limit >= l->n) return NULL;
    size_t *left = all_indices(l->n);
    choice_task *picked = calloc(l->n, sizeof *picked);
    if (!left || !picked) {
        free(left);
        free(picked);
        return no_memory;
    }
    twister t;
    twister_start(&t, 1);
    for (size_t i = 0; i < limit; i++) {
        size_t at = below_float(&t, n_left);
        picked[i] = l->task[left[at]];
        left[at] = left[--n_left];
    }
    choice_list others = {.task = calloc(n_left, sizeof *picked)};
    for (size_t i = 0; others.task && i < n_left; i++) others.task[others.n++] = l->task[left[i]];
    const char *what = others.task ? NULL : no_memory;
    if (!what) {
        free(l->task);
        l->task = picked;
        l->n = limit;
        choices_free(&others);
    } else {
        free(picked);
    }
    free(left);
    return what;
}

const char *choices_winogrande(const char *file, size_t n, size_t limit, choice_list *out, size_t *n_bad,
                               char msg[160])
{
    span rest = {file, n}, line;
    size_t n_lines = 0;
    const char *what = NULL;
    *out = (choice_list) {0};
    *n_bad = 0;
    while (next_line(&rest, &line)) n_lines++;
    out->task = calloc(n_lines + 1, sizeof *out->task);
    if (!out->task) return no_memory;
    rest = (span) {file, n};
    while (!what && next_line(&rest, &line)) {
        int rc = winogrande_task(out, line);
        if (rc < 0) what = no_memory;
        *n_bad += rc == 0;
    }
    out->n_file = out->n;
    snprintf(msg, 160, "none of %zu lines is a task", n_lines);
    if (!what && !out->n) what = msg;
    if (!what) what = pick(out, limit);
    return finish(out, what);
}

/* ------------------------------------------------------------------------------------------------- multiple choice */

static bool take_u32(span *s, uint32_t *v)
{
    if (s->n < 4) return false;
    const unsigned char *p = (const unsigned char *) s->p;
    *v = p[0] | (uint32_t) p[1] << 8 | (uint32_t) p[2] << 16 | (uint32_t) p[3] << 24;
    s->p += 4;
    s->n -= 4;
    return true;
}

static bool take_text(span *s, span *text)
{
    uint32_t n;
    if (!take_u32(s, &n) || n > s->n) return false;
    *text = (span) {s->p, n};
    s->p += n;
    s->n -= n;
    return true;
}

/* Parses the task at the start of s; ignores the rest of s. */
static const char *multiple_task(choice_list *l, span s, size_t which, char msg[160])
{
    span question, answer[MOST_CHOICES];
    uint32_t n = 0, right = 0;
    snprintf(msg, 160, "task %zu is truncated or malformed", which + 1);
    if (!take_text(&s, &question) || !question.n || !take_u32(&s, &n) || n < 2 || n > MOST_CHOICES) return msg;
    for (uint32_t i = 0; i < n; i++)
        if (!take_text(&s, &answer[i]) || !answer[i].n) return msg;
    choice_task *t = add_task(l, n);
    if (!t) return no_memory;
    for (uint32_t i = 0; i < n; i++) {
        const span part[] = {question, {" ", 1}, answer[i]};
        if (!take_u32(&s, &right)) return msg;
        if (!add_choice(t, part, 3, 3, right == 1)) return no_memory;
    }
    return NULL;
}

const char *choices_multiple(const char *file, size_t n, size_t limit, choice_list *out, char msg[160])
{
    span s = {file, n};
    uint32_t n_tasks, at;
    *out = (choice_list) {0};
    if (!take_u32(&s, &n_tasks) || !n_tasks) return "the file has no tasks";
    if (n_tasks > s.n / 4) return "the file ends within its list of tasks";
    out->n_file = n_tasks;
    size_t n_left = n_tasks;
    bool all = !limit || limit >= n_tasks;
    if (all) limit = n_tasks;
    size_t *left = all_indices(n_tasks);
    out->task = calloc(limit, sizeof *out->task);
    const char *what = left && out->task ? NULL : no_memory;
    twister t;
    twister_start(&t, 1);
    for (size_t i = 0; !what && i < limit; i++) {
        size_t pos = all ? i : below_float(&t, n_left), which = all ? i : left[pos];
        if (!all) left[pos] = left[--n_left];
        span offset = {s.p + which * 4, 4};
        take_u32(&offset, &at);
        snprintf(msg, 160, "task %zu is outside of the file", which + 1);
        what = at > n ? msg : multiple_task(out, (span) {file + at, n - at}, which, msg);
    }
    free(left);
    return finish(out, what);
}
