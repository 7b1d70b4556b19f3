/* pi_chat_parser_*: splits an engine's answers into thoughts, content and calls (see template/answer.h). */
#include <time.h>

#include "api/objects.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/versioned.h"
#include "template/answer.h"

struct pi_chat_parser {
    pi__answer *a;
};

int pi_chat_parser_new(pi_chat_parser **out, const pi_engine *e, const char *tools, const char *options, pi_error *err)
{
    if (!out) return pi__fail(err, PI_EINVAL, "pi_chat_parser_new: out is NULL");
    *out = NULL;
    if (!e) return pi__fail(err, PI_EINVAL, "pi_chat_parser_new: engine is NULL");
    if (!e->chat) return pi__fail(err, e->chat_err.code, "%s", e->chat_err.msg);
    pi_chat_parser *p = pi__calloc(1, sizeof *p);
    if (!p) return pi__fail_mem(err, "the answer's parser");
    int rc = pi__answer_new(&p->a, e->chat, tools, options, (int64_t) time(NULL), err);
    if (rc) pi__free(p);
    else *out = p;
    return rc;
}

void pi_chat_parser_free(pi_chat_parser *p)
{
    if (!p) return;
    pi__answer_free(p->a);
    pi__free(p);
}

int pi_chat_parser_feed(pi_chat_parser *p, const char *text, size_t len)
{
    return !p || (!text && len) ? PI_EINVAL : pi__answer_feed(p->a, text ? text : "", len);
}

int pi_chat_parser_feed_tokens(pi_chat_parser *p, const int32_t *ids, size_t n)
{
    return !p || (!ids && n) ? PI_EINVAL : pi__answer_tokens(p->a, ids, n);
}

void pi_chat_parser_bind(pi_chat_parser *p)
{
    if (p) pi__answer_bind(p->a);
}

int pi_chat_parser_end(pi_chat_parser *p, int finish)
{
    if (!p) return PI_EINVAL;
    int rc = pi__answer_end(p->a, finish != PI_FINISH_STOP);
    if (rc) return rc;
    return finish == PI_FINISH_STOP && pi__answer_calls(p->a) ? PI_FINISH_TOOL_CALLS : finish;
}

bool pi_chat_parser_next(pi_chat_parser *p, pi_chat_delta *out)
{
    return p && !pi__versioned_check(out) && pi__answer_next(p->a, out);
}

static size_t give_text(pi__str s, const char **text)
{
    if (text) *text = s.p;
    return s.n;
}

size_t pi_chat_parser_content(const pi_chat_parser *p, const char **text)
{
    return give_text(p ? pi__answer_content(p->a) : pi__str_of(""), text);
}

size_t pi_chat_parser_reasoning(const pi_chat_parser *p, const char **text)
{
    return give_text(p ? pi__answer_reasoning(p->a) : pi__str_of(""), text);
}

int pi_chat_parser_call(const pi_chat_parser *p, uint32_t i, pi_chat_call *out)
{
    if (!p || pi__versioned_check(out)) return PI_EINVAL;
    return pi__answer_call(p->a, i, out) ? PI_OK : PI_ENOENT;
}
