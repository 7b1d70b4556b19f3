/* Generations: client requests that the model responds to.
 *
 * A generation is created when the request body is complete. A thread of libuv's pool parses the JSON, renders,
 * tokenizes, and submits requests to the engine, within a work budget (prep.h). The loop receives their events and
 * passes them to a WIRE, the response writer of one API. A wire receives text in PIECES that end at token boundaries,
 * so ids and probabilities match their text exactly. A chat's pieces are first split into content, reasoning and tool
 * calls (chat.h).
 *
 * Threads: from gen_start to the end of preparation the pool's thread owns the generation, then the loop's thread. The
 * pool owns it once more while it writes a large response (finish). */
#ifndef PAGEDINFER_SERVE_GEN_H
#define PAGEDINFER_SERVE_GEN_H

#include "serve/chat.h"
#include "serve/params.h"
#include "serve/prep.h"
#include "serve/server.h"

typedef struct gen gen;
typedef struct choice choice;

/* A step of new output of a choice, as a wire receives it. */
typedef struct piece {
    const chat_delta *delta;      /* [n_deltas] new parts, in order */
    size_t n_deltas;
    const int32_t *ids;           /* [n_ids] tokens of this text */
    size_t n_ids;
    const pi_token_prob *probs;   /* [n_ids][n_probs of the choice] log-probabilities; NULL = not requested */
    size_t text_at;               /* bytes of the choice's text before this piece */
    bool last;                    /* the choice has ended and its finish and reason are set; no piece follows */
} piece;

typedef struct wire {
    const char *id_prefix;                       /* "chatcmpl-" */
    const char *what;                            /* name for the log: "chat" */
    /* On the pool: converts a body to the fields of another API before they are read. *out is a new object. NULL = the
     * body is read as it is. */
    int (*translate)(gen *g, json_t *body, json_t **out, pi_error *err);
    /* On the pool: reads the API's own fields from p->root into g->p. Returns PI_OK or an error such as PI_EINVAL. */
    int (*read)(gen *g, pi_error *err);
    /* On the loop, for streams: called before the first piece, for each piece, and after the last piece. */
    void (*begin)(gen *g);
    void (*piece)(gen *g, choice *ch, const piece *pc);
    void (*finish)(gen *g);
    /* Writes the prompt progress of ch (ch->progress); NULL = the API has no progress events. */
    void (*progress)(gen *g, const choice *ch);
    /* Returns the complete response; NULL = out of memory. A large response is written on the pool. */
    json_t *(*whole)(gen *g);
    /* Writes the complete response as text, for APIs with large JSON trees; NULL = `whole` is used. Returns false if a
     * number is not finite. */
    bool (*write)(const gen *g, buf *out);
    unsigned api;                                /* API_* of the request fields (fields.h) */
    bool raw_prompt;                             /* the prompts are p->prompts, not a conversation */
    bool json_lines;                             /* a stream has one JSON object per line, no server-sent events */
} wire;

typedef struct tool_call { /* a call of a complete response */
    buf id, name, args;
} tool_call;

typedef struct prompt_probs { /* log-probabilities of a prompt's tokens, without the first */
    int32_t *ids;            /* [n] the tokens */
    pi_token_prob *probs;    /* [n][row] for each token: itself, then its alternatives */
    size_t n, row;
} prompt_probs;

typedef struct prompt_progress { /* numbers of prompt tokens */
    uint32_t n, cached, computed;
    double ms;               /* milliseconds since the prompt was started */
    bool fresh;              /* not yet written */
} prompt_progress;

struct choice {
    gen *g;
    uint32_t index;          /* index among all choices of the generation */
    pi_request *r;           /* its engine request */
    uint32_t sample;         /* number of the sample of r that is this choice */
    bool done;               /* its last event has arrived */
    bool ended;              /* its last piece was given to the wire */
    int finish;              /* PI_FINISH_* */
    const char *reason;      /* "stop", "length" or "tool_calls"; valid once done */
    pi_result res;           /* valid once done */
    buf text;                /* text received and not yet given to the wire */
    size_t text_in, text_out; /* bytes of text received so far; bytes given to the wire */
    bool bound;              /* a tool-call grammar constrains the text from byte bound_at on */
    size_t bound_at;         /* valid if bound: bytes of text received before */
    int32_t *ids;            /* [n_ids] all tokens so far */
    size_t *end;             /* [n_ids] text bytes up to the end of each token; SIZE_MAX = it ends within a character */
    size_t *chars;           /* [n_ids] text characters up to the end of each token */
    pi_token_prob *probs;    /* [n_ids][n_probs] log-probabilities */
    size_t n_ids, cap_ids, cap_end, cap_chars, cap_probs;
    size_t n_probs;          /* entries per token; 0 = none */
    size_t ids_out;          /* tokens with text given to the chat parser, or to the wire */
    size_t ids_carry;        /* tokens given to the wire; fewer than ids_out while the parser withholds text */
    utf8_hold utf8;          /* an incomplete character at the end of the tokens */
    size_t token_bytes, token_chars; /* bytes and characters of the text of all tokens so far */
    prompt_progress progress; /* used by the first choice of a prompt */
    bool has_line;           /* the text contains a newline */
    bool over;               /* canceled: t_max_predict_ms passed, or all samples of its request were cut */
    bool in_line;            /* n_indent: the last line has text after its indentation */
    bool indent_counts;      /* a line is complete, so n_indent applies to the following ones */
    bool cut;                /* n_indent ended the choice: later tokens are dropped */
    int64_t indent;          /* number of blanks at the start of the last line */
    prompt_probs prompt;     /* used by the first choice of a prompt */
    chat_reader *reader;     /* parser of a chat; NULL = all text is content */
    buf content, reasoning;  /* text given to the wire so far, for complete responses and repeated text */
    tool_call *calls;        /* [n_calls] calls given to the wire so far */
    size_t n_calls, cap_calls;
    bool cut_call;           /* the answer ended within its last call, after parts of that call were streamed */
    uint64_t token_at;       /* uv_hrtime of its last token; 0 = no token yet */
    chat_delta *shown;       /* [cap_shown] scratch: deltas of a piece without hidden reasoning */
    size_t cap_shown;
    float *vector;           /* embeddings, concatenated if there are several, or scores; owned */
    size_t n_vector, n_vectors; /* number of values in total; number of vectors */
    int block, block_kind;   /* for wires: the open block and its type */
    size_t n_blocks;         /* number of blocks begun so far */
    size_t block_call;       /* index of the block's tool call, if it is a call */
    buf block_text;          /* the block's text so far, for wires that repeat it at the end */
};

struct gen {
    server *s;
    exchange *ex;            /* NULL after the response */
    const wire *w;
    params p;
    char id[64];
    int64_t created;         /* seconds since 1970 */
    gen *prev, *next;        /* in s->gens */
    prep prep;               /* the work on the pool; while `working`, the pool owns the generation */
    size_t n_body;           /* bytes of the request body */
    char *salt;              /* prefix cache salt, or NULL; owned */
    const char *adapter;     /* adapter that the client names as model, or NULL; in p.root */
    pi_request **r;          /* one per prompt */
    size_t n_r;
    choice *choices;         /* n for each prompt */
    size_t n_choices, n_done, n_ended; /* choices; the ones with `done`; the ones with `ended` */
    chat_state chat;         /* chats only */
    bool is_chat, working, submitted, streaming, canceled, pumping, too_slow, hide_thoughts;
    bool wants_heavy;        /* the request has images: prepare it in the heavy lane */
    bool dirty;              /* in the list of generations to pump after the pending events */
    bool finished;           /* finish_stream was called: nothing more is pumped */
    int status;              /* HTTP status of the response */
    pi_error err;            /* the error; code 0 = none */
    pi_error work_err;       /* error of the work on the pool */
    bool over_budget;        /* the work exceeded the step or memory limit of its budget */
    buf whole;               /* the complete response as text, until it is sent */
    uint64_t n_sent;         /* for wires: number of events so far */
    uint64_t sent_at;        /* streams: uv_now of the loop at submission or at the last write */
    uint64_t first_at;       /* uv_hrtime of the first token; 0 = no token yet */
    char previous[72];       /* /v1/responses: previous_response_id, or "" */
    const char *abort_why;   /* reason of the cancellation, for the log */
};

/* Starts a generation: its preparation parses the body of ex and submits the engine requests. w: the response
 * writer. */
void gen_start(server *s, exchange *ex, const wire *w);
/* Stores an event of the engine in its generation, and returns the generation. May cancel it, but writes nothing: the
 * caller calls gen_pump after the last pending event. */
gen *gen_event(const pi_event *ev);
/* Gives new text of all choices to the wire. When all choices have ended, sends the end of the response or the error,
 * and frees the generation. */
void gen_pump(gen *g);
/* For streams without output for longer than their ping interval: begins the stream if needed, and sends a comment. */
void gen_ping_all(server *s);
/* Cancels all running generations; `why` is the reason for log and client, a constant. */
void gen_cancel_all(server *s, const char *why);

/* Sets the template variables that follow from the server's options (--reasoning, --reasoning-budget,
 * --reasoning-effort, --prefill-assistant), unless the client sets them. Runs on the pool. */
int gen_template_defaults(const server *s, params *p, pi_error *err);
/* vocab.c: tokenizes prompts and biases that need ids, truncates prompts, and adds the biases as options. Runs on the
 * pool. */
int gen_vocab_fields(gen *g, pi_error *err);
/* Tokenizes v, a text or a list of texts and ids, within a work limit (NULL = no limit). flags: PI_TOK_*; PI_TOK_BOS
 * applies only to a text at the start. The caller frees *ids, also after a failure. Thread-safe. */
int server_tokens(const server *s, pi_work *limit, const json_t *v, int flags, int32_t **ids, size_t *n);
/* lora.c: adds option "lora" with the adapters that the request names by field or as model. Runs on the pool. */
int gen_adapters(gen *g, pi_error *err);

/* ---- for wires */
/* Sends one stream event and takes ownership of root; root == NULL means out of memory. Returns false if out of
 * memory; g->err is then set. */
bool gen_send(gen *g, const char *event, json_t *root);
json_t *ids_json(const int32_t *ids, size_t n);
json_t *progress_json(const choice *ch);
/* Numbers of tokens, summed over all engine requests of a generation. */
typedef struct usage { uint64_t prompt, cached, completion, drafted, accepted; } usage;
usage gen_usage(const gen *g);
const char *gen_model(const gen *g);
/* Returns [{"token", "logprob", "bytes", "top_logprobs"}] for n rows of probs. */
json_t *gen_logprobs(const gen *g, const choice *ch, const pi_token_prob *probs, size_t n);
json_t *gen_timings(const choice *ch); /* llama-server's "timings" object, so far or of the complete response */
/* Returns the option values of a request; p == NULL: the values of a request without fields. */
json_t *server_settings(const server *s, const params *p);

/* wire_embeddings.c: reads the texts of a field as prompts for vectors; appends a vector as JSON, false if a number is
 * not finite. */
int embeddings_read(gen *g, const char *input, pi_error *err);
bool embeddings_put(buf *b, const float *v, size_t n);

/* infill.c. infill_read reads the body of /infill. infill_prompt builds a prompt from `parts`, truncated to the
 * context, and sets it as the only prompt of g. */
int infill_read(gen *g, pi_error *err);
int infill_prompt(gen *g, const pi_infill_parts *parts, pi_error *err);

extern const wire wire_chat, wire_completions, wire_native, wire_responses, wire_messages, wire_embeddings,
                  wire_native_embeddings, wire_rerank, wire_infill, wire_ollama_chat, wire_ollama_generate,
                  wire_ollama_embed, wire_ollama_embeddings;

#endif
