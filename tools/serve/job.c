/* Work on the pool for requests that need no generation (see job.h). */
#include "serve/job.h"

#include <stdlib.h>
#include <string.h>

#include "json.h"

static json_t *body_of(job *j)
{
    buf *b = &j->ex->req.body;
    json_t *root = params_parse(b->p, b->n, &j->err);
    if (j->prep.heavy) buf_free(b); /* light work may be restarted */
    return json_is_array(root) ? json_pack("{s:o}", "list", root) : root;
}

/* Writes the response as text, unless run has written it already. */
static int write_text(job *j, json_t *answer)
{
    if (text_failed() || j->text.failed) return params_no_memory(&j->err); /* a part of the output is missing */
    if (j->text.n) return PI_OK;
    if (!answer) return params_no_memory(&j->err);
    char *text = json_write(answer, ANSWER_DIGITS);
    if (text) j->text = (buf) {.p = text, .n = strlen(text)};
    return text_failed() || !text ? params_no_memory(&j->err) : PI_OK;
}

static bool run(prep *pr)
{
    job *j = pr->owner;
    json_t *answer = NULL, *root = body_of(j);
    int rc = root ? params_read(&j->p, root, 0, &j->err) : j->err.code ? j->err.code : PI_ENOMEM;
    j->p.reads_images = j->s->sv.info.modalities & PI_MODALITY_VISION;
    if (!rc) rc = j->run(j, &answer);
    if (!rc) rc = write_text(j, answer);
    else if (text_failed()) rc = params_no_memory(&j->err);
    json_decref(answer);
    if (rc && (prep_spent(pr) || (j->wants_heavy && !pr->heavy))) {
        params_free(&j->p);
        buf_free(&j->text);
        j->p = (params) {0};
        j->err = (pi_error) {0};
        return false;
    }
    j->err.code = rc;
    if (rc && !*j->err.msg) snprintf(j->err.msg, sizeof j->err.msg, "%s", pi_strerror(rc));
    if (j->p.bad_field) j->field = strdup(j->p.bad_field); /* bad_field may point into the tree */
    params_free(&j->p); /* here, because freeing a large tree takes long */
    j->p = (params) {0};
    return true;
}

static void done(prep *pr, int code)
{
    job *j = pr->owner;
    exchange *ex = j->ex;
    if (code == PI_ENOMEM) params_no_memory(&j->err);
    else if (code) j->err = (pi_error) {code, "the request took too long"};
    ex->on_gone = NULL;
    if (!j->err.code) {
        answer_owned(ex, 200, j->text.p, j->text.n);
        j->text = (buf) {0};
    } else {
        answer_error(ex, j->status ? j->status : status_of(j->err.code), j->field, NULL, "%s", j->err.msg);
    }
    j->s->n_jobs--;
    buf_free(&j->text);
    free(j->field);
    free(j);
}

static void on_gone(exchange *ex)
{
    job *j = ex->job;
    prep_cancel(&j->prep);
}

static void start(server *s, exchange *ex, int (*work)(job *, json_t **), bool heavy)
{
    job *j = calloc(1, sizeof *j);
    if (!j) {
        answer_error(ex, 503, NULL, NULL, "out of memory");
        return;
    }
    *j = (job) {.s = s, .ex = ex, .run = work, .prep = {.owner = j, .run = run, .done = done}};
    s->n_jobs++;
    ex->job = j;
    ex->on_gone = on_gone;
    (heavy ? prep_start_heavy : prep_start)(&j->prep, s, ex, ex->req.body.n);
}

void job_start(server *s, exchange *ex, int (*work)(job *, json_t **)) { start(s, ex, work, false); }
void job_start_heavy(server *s, exchange *ex, int (*work)(job *, json_t **)) { start(s, ex, work, true); }
