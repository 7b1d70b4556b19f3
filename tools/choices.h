/* Multiple-choice tasks for `pagedinfer eval`: llama-perplexity's data files, and its selection of tasks. Independent
 * of the engine. Files are untrusted: malformed content is reported and refused. */
#ifndef PAGEDINFER_CHOICES_H
#define PAGEDINFER_CHOICES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct choice {
    char *text;      /* [n] complete text for the model: the task's common beginning, this choice, the common end */
    size_t n;        /* bytes of text */
    size_t n_head;   /* bytes of text up to the end of the choice; equal to n except for Winogrande */
    bool right;      /* correct answer */
} choice;

typedef struct choice_task {
    choice *choice;  /* [n] the alternatives */
    size_t n;        /* 2 to MOST_CHOICES */
} choice_task;
enum { MOST_CHOICES = 100 };

typedef struct choice_list {
    choice_task *task; /* [n] in processing order */
    size_t n;
    size_t n_file;     /* tasks in the file, of which n were selected */
} choice_list;

/* Each function parses the n bytes of a file, selects `limit` of its tasks (0 = all), and stores them in *out. Returns
 * NULL, or an error text (in msg or a constant); *out is then empty.
 *
 * HellaSwag: text, 6 lines per task: the context, the number of the correct ending (0 to 3), the endings. Tasks are in
 * random order.
 * Winogrande: CSV, one line per task: index, sentence with a _ (quoted if it contains commas), first and second choice
 * for it, the number of the correct one (1 or 2). Malformed lines are skipped and counted in *n_bad. A last line
 * without a newline counts as a task. llama-perplexity ignores that line, and its -f strips the final newline, so it
 * loses the last task of most files.
 * Multiple choice: binary, little-endian: u32 n, u32 offset[n], then tasks: a question; answers with one correct one;
 * answers with several correct ones (unused). A text is u32 length and bytes; answers are u32 n, texts, i32
 * right[n]. */
const char *choices_hellaswag(const char *file, size_t n, size_t limit, choice_list *out, char msg[160]);
const char *choices_winogrande(const char *file, size_t n, size_t limit, choice_list *out, size_t *n_bad,
                               char msg[160]);
const char *choices_multiple(const char *file, size_t n, size_t limit, choice_list *out, char msg[160]);
void choices_free(choice_list *l);

#endif
