/* Tasks with several answers to choose from, for `pagedinfer eval`: the data files of llama-perplexity, and its choice
 * among their tasks. Knows no engine. Files may hold anything: what is malformed is said and refused. */
#ifndef PAGEDINFER_CHOICES_H
#define PAGEDINFER_CHOICES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct choice {
    char *text;      /* [n] all that is shown to the model: what all choices begin with, this one, what comes behind */
    size_t n;        /* bytes of text */
    size_t n_head;   /* of them up to the end of the choice itself; n but for Winogrande */
    bool right;      /* it is the answer */
} choice;

typedef struct choice_task {
    choice *choice;  /* [n] */
    size_t n;        /* at least 2, at most MOST_CHOICES */
} choice_task;
enum { MOST_CHOICES = 100 };

typedef struct choice_list {
    choice_task *task; /* [n] in the order in which they are done */
    size_t n;
    size_t n_file;     /* tasks that the file has */
} choice_list;

/* Each reads the n bytes of a file and picks limit of its tasks (0, or as many as it has: all). Returns NULL, or what
 * is wrong (in msg, or a constant); the list is empty then.
 *
 * HellaSwag: text, 6 lines a task: the context, the number of the right ending (0 to 3), the endings. Tasks come in a
 * random order.
 * Winogrande: CSV, a line a task: index, sentence with a _ (quoted if it has commas), first and second choice for it,
 * the number of the right one (1 or 2). Lines without all that are left out, and counted in *n_bad. A last line without
 * a newline is a task, too, unlike in llama-perplexity, whose -f thereby loses the last task of most files.
 * Multiple choice: binary, little-endian: u32 n, u32 offset[n], then tasks: a question; answers with one that is right;
 * answers of which several are (not used). A text is u32 length and bytes; answers are u32 n, texts, i32 right[n]. */
const char *choices_hellaswag(const char *file, size_t n, size_t limit, choice_list *out, char msg[160]);
const char *choices_winogrande(const char *file, size_t n, size_t limit, choice_list *out, size_t *n_bad,
                               char msg[160]);
const char *choices_multiple(const char *file, size_t n, size_t limit, choice_list *out, char msg[160]);
void choices_free(choice_list *l);

#endif
