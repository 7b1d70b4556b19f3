/* Generations: a request of a client that the model answers.
 *
 * A generation is made when its body is whole. A thread of libuv's pool reads the JSON, renders, tokenises, and submits
 * requests to the engine, within a budget (prep.h); the loop takes their events and gives them to a WIRE, the form in which one API writes
 * answers. Text comes to a wire in PIECES that end where a token ends, so that ids and probabilities belong to the very
 * text they come with; a chat's pieces are first told apart into content, reasoning and tool calls (chat.h).
 *
 * Threads: between gen_start and the end of its work the pool's thread has it, from then on the loop's; once more the pool's
 * while a large answer is written (finish). */
#ifndef PAGEDINFER_SERVE_GEN_H
#define PAGEDINFER_SERVE_GEN_H

#include "serve/chat.h"
#include "serve/params.h"
#include "serve/prep.h"
#include "serve/server.h"

typedef struct gen gen;
typedef struct choice choice;

/* What a wire gets of a choice at a time. */
typedef struct piece {
    const chat_delta *delta;      /* what was added, in order */
    size_t n_deltas;
    const int32_t *ids;           /* tokens of this text */
    size_t n_ids;
    const pi_token_prob *probs;   /* of each, row_probs of them; NULL: not asked for */
    size_t text_at;               /* bytes of the answer's text before this piece */
    bool last;                    /* the choice ended: finish is set */
} piece;

typedef struct wire {
    const char *id_prefix;                       /* "chatcmpl-" */
    const char *what;                            /* for the log: "chat" */
    /* On the pool: the API's own fields, from p->root; PI_EINVAL... */
    int (*read)(gen *g, pi_error *err);
    /* On the loop. Streams: before the first piece; a piece; after the last one. */
    void (*begin)(gen *g);
    void (*piece)(gen *g, choice *ch, const piece *pc);
    void (*finish)(gen *g);
    /* How far ch's prompt is (ch->progress); NULL: nobody asks this API for it. */
    void (*progress)(gen *g, const choice *ch);
    /* The whole answer. NULL: out of memory. A large one is written on the pool. */
    json_t *(*whole)(gen *g);
    /* The same as text, of APIs whose answers would be large trees; NULL: it is what whole says. false: a number in it is none. */
    bool (*write)(const gen *g, buf *out);
    unsigned api;                                /* API_* of its fields (fields.h) */
    bool raw_prompt;                             /* the prompts are p->prompts, not a conversation */
} wire;

typedef struct tool_call { /* of a whole answer */
    buf id, name, args;
} tool_call;

typedef struct prompt_probs { /* of a prompt that is echoed */
    int32_t *ids;            /* its tokens but the first */
    pi_token_prob *probs;    /* row of each */
    size_t n, row;
} prompt_probs;

typedef struct prompt_progress { /* tokens of a prompt */
    uint32_t n, cached, computed;
    double ms;               /* since it was started */
    bool fresh;              /* not written yet */
} prompt_progress;

struct choice {
    gen *g;
    uint32_t index;          /* number among all choices of the generation */
    pi_request *r;           /* its request, of which it is sample number `sample` */
    uint32_t sample;
    bool done;               /* its last event came */
    bool ended;              /* and was written */
    int finish;              /* PI_FINISH_* */
    const char *reason;      /* "stop", "length", "tool_calls"; once it is done */
    pi_result res;           /* once it is done */
    buf text;                /* received, not yet given out */
    size_t text_in, text_out; /* bytes received so far, and given out */
    bool bound;              /* a grammar of calls holds the text behind */
    size_t bound_at;         /* these bytes */
    int32_t *ids;            /* all tokens so far */
    size_t *end;             /* bytes of text after each; SIZE_MAX: it ends within a character */
    size_t *chars;           /* characters of text after each */
    pi_token_prob *probs;    /* n_probs of each */
    size_t n_ids, cap_ids, cap_end, cap_chars, cap_probs;
    size_t n_probs;          /* entries a token; 0: none */
    size_t ids_out;          /* tokens given out */
    size_t ids_carry;        /* of these, the first whose text the chat parser has not let out yet */
    utf8_hold utf8;          /* an unfinished character at the end of the tokens */
    size_t token_bytes, token_chars; /* bytes and characters of text that the tokens so far make */
    prompt_progress progress; /* of the first choice of a prompt */
    bool has_line;           /* a line of the answer is complete */
    bool over;               /* it was canceled since it took too long, or since all samples of its request are cut */
    bool in_line;            /* n_indent: its last line has text behind its indentation */
    bool indent_counts;      /* a line is complete, so that n_indent holds for the next ones */
    bool cut;                /* n_indent ended it: later tokens are dropped */
    int64_t indent;          /* blanks at the start of the last line */
    prompt_probs prompt;     /* of the first choice of a prompt */
    chat_reader *reader;     /* of a chat; NULL: text is content */
    buf content, reasoning;  /* of a whole answer */
    tool_call *calls;
    size_t n_calls, cap_calls;
    bool cut_call;           /* the last of them is incomplete, and was shown as it grew */
    uint64_t token_at;       /* uv_hrtime of its last token, 0: none came */
    chat_delta *shown;       /* where thoughts are hidden: what is left of a piece */
    size_t cap_shown;
    float *vector;           /* of an embedding, one behind the other where there are several; or scores; owned */
    size_t n_vector, n_vectors; /* values of all of them; how many */
    int block, block_kind;   /* for wires: the open block, and what it is */
    size_t n_blocks;         /* and how many there were */
    size_t block_call;       /* which tool call it is, if it is one */
    buf block_text;          /* its text so far, where the wire repeats it at the end */
};

struct gen {
    server *s;
    exchange *ex;            /* NULL once it is answered */
    const wire *w;
    params p;
    char id[64];
    int64_t created;         /* seconds since 1970 */
    gen *prev, *next;        /* in s->gens */
    prep prep;               /* its work on the pool: while `working`, it is the pool's */
    size_t n_body;           /* bytes of its body */
    char *salt;              /* of the cache, or NULL; owned */
    const char *adapter;     /* that the client names as model, or NULL; in p.root */
    pi_request **r;          /* one a prompt */
    size_t n_r;
    choice *choices;         /* n of each prompt */
    size_t n_choices, n_done, n_ended;
    chat_state chat;         /* of a chat */
    bool is_chat, working, submitted, streaming, canceled, pumping, too_slow, hide_thoughts;
    bool dirty;              /* in the list of those to be pumped */
    bool finished;           /* everything was written */
    int status;              /* of an error */
    pi_error err;            /* the error itself; code 0: none */
    pi_error work_err;       /* of the work on the pool */
    bool over_budget;        /* because that took too much work or memory */
    buf whole;               /* a large answer as JSON, written on the pool */
    uint64_t n_sent;         /* for wires: events so far */
    uint64_t sent_at;        /* of a stream: uv_now of the loop when it was submitted, or something was sent last */
    uint64_t first_at;       /* uv_hrtime of the first token, 0: none came */
    const char *abort_why;   /* why it was canceled; for the log */
};

/* Takes the exchange's body. */
void gen_start(server *s, exchange *ex, const wire *w);
/* Takes an event of the engine into its generation, which it returns: to be pumped once no event is at hand. */
gen *gen_event(const pi_event *ev);
/* Gives out what is ready; the generation may be gone afterwards. */
void gen_pump(gen *g);
/* Streams that were silent for too long get a comment. */
void gen_ping_all(server *s);
/* Cancels all that run. */
void gen_cancel_all(server *s, const char *why);

/* What the server's options (--reasoning, --reasoning-budget, --reasoning-effort, --prefill-assistant) give the template where
 * the client says nothing of it. On the pool. */
int gen_template_defaults(const server *s, params *p, pi_error *err);
/* vocab.c: prompts and biases become ids as far as they have to. On the pool. */
int gen_vocab_fields(gen *g, pi_error *err);
/* Tokens of a text, or of a list of texts and ids, within a limit of work (NULL = none); flags: PI_TOK_*, PI_TOK_BOS for a
 * text that comes first. *ids is to be freed in any case. Any thread. */
int server_tokens(const server *s, pi_work *limit, const json_t *v, int flags, int32_t **ids, size_t *n);
/* The adapters that the request asks for, as an option of its requests. On the pool. */
int gen_adapters(gen *g, pi_error *err);

/* ---- for wires */
/* An event of a stream; takes root over, NULL: out of memory. false: that, and g->err is set. */
bool gen_send(gen *g, const char *event, json_t *root);
json_t *ids_json(const int32_t *ids, size_t n);
json_t *progress_json(const choice *ch);
/* Sums over the requests. */
typedef struct usage { uint64_t prompt, cached, completion, drafted, accepted; } usage;
usage gen_usage(const gen *g);
const char *gen_model(const gen *g);
/* [{"token", "logprob", "bytes", "top_logprobs"}] of n rows of probs. */
json_t *gen_logprobs(const gen *g, const choice *ch, const pi_token_prob *probs, size_t n);
json_t *gen_timings(const choice *ch); /* llama-server's object, so far or of all */
/* The values of options in a request's fields, or with p NULL of one without any. */
json_t *server_settings(const server *s, const params *p);

/* infill.c: the body of /infill, and a prompt made of these parts, as much of them as there is room for. */
int infill_read(gen *g, pi_error *err);
int infill_prompt(gen *g, const pi_infill_parts *parts, pi_error *err);

extern const wire wire_chat, wire_completions, wire_native, wire_responses, wire_messages, wire_embeddings,
                  wire_native_embeddings, wire_rerank, wire_infill;

#endif
