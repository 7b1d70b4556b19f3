/* Work on the pool for requests that the model need not answer (see job.h). */
#include "serve/job.h"

#include <stdlib.h>

static json_t *body_of(job *j)
{
    const buf *b = &j->ex->req.body;
    json_t *root = params_parse(b->p, b->n, &j->err);
    return json_is_array(root) ? json_pack("{s:o}", "list", root) : root;
}

static void on_work(uv_work_t *w)
{
    job *j = w->data;
    json_t *root = body_of(j);
    int rc = root ? params_read(&j->p, root, &j->err) : j->err.code ? j->err.code : PI_ENOMEM;
    if (!rc) rc = j->run(j, &j->answer);
    if (text_failed() || (!rc && !j->answer)) rc = params_no_memory(&j->err);
    j->err.code = rc;
    if (rc && !*j->err.msg) snprintf(j->err.msg, sizeof j->err.msg, "%s", pi_strerror(rc));
}

static void after_work(uv_work_t *w, int status)
{
    job *j = w->data;
    if (status < 0 || (!j->answer && !j->err.code)) params_no_memory(&j->err);
    if (!j->err.code) {
        answer_json(j->ex, 200, j->answer);
    } else {
        json_decref(j->answer);
        answer_error(j->ex, j->status ? j->status : status_of(j->err.code), j->p.bad_field, NULL, "%s", j->err.msg);
    }
    j->s->n_jobs--;
    params_free(&j->p);
    free(j);
}

void job_start(server *s, exchange *ex, int (*run)(job *, json_t **))
{
    job *j = calloc(1, sizeof *j);
    if (!j) {
        answer_error(ex, 503, NULL, NULL, "out of memory");
        return;
    }
    *j = (job) {.s = s, .ex = ex, .run = run, .work.data = j};
    s->n_jobs++;
    uv_queue_work(&s->loop, &j->work, on_work, after_work);
}
