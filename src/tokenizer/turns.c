/* Finds the tokens that begin a turn of a conversation, from the chat template's text, when the vocabulary is loaded.
 *
 * GGUF has no field for them. But a template writes a role right after this token, or the token itself names a role:
 *
 *     '<|im_start|>' + message.role + '\n'            a token, then an expression about the role
 *     {{- '<|im_start|>user\n' }}                     a token, then the name of a role
 *     '<|user|>' + message['content']                 a token that contains the name of a role
 *
 * So every special token in the text is checked together with the code after it; code that is neither a word nor
 * another token is skipped. Known spellings count wherever the template mentions them. If the template yields nothing,
 * or does not exist, they count if the vocabulary has them. A wrong guess costs a snapshot, never a token. */
#include <ctype.h>
#include <string.h>

#include "tokenizer/vocab_impl.h"

static const char *const roles[] = {"user", "assistant", "system", "developer", "model", "tool"};
enum { N_ROLES = sizeof roles / sizeof *roles, N_OWN_NAME = 4 }; /* <tool> and <model> do not begin turns */

static const char *const known[] = {
    "<|im_start|>", "<|turn>", "<start_of_turn>", "<|start_header_id|>", "<|start_of_role|>", "<|start|>",
    "<\xEF\xBD\x9CUser\xEF\xBD\x9C>", ("<\xEF\xBD\x9C" "Assistant\xEF\xBD\x9C>"), "<|user|>", "<|assistant|>",
    "[INST]", "<|START_OF_TURN_TOKEN|>",
};
enum { N_KNOWN = sizeof known / sizeof *known };

static bool is_word(char c) { return isalnum((unsigned char) c) || c == '_'; }

/* True if the n bytes at p start with word, in any case, followed by no letter, digit or byte of `more`. */
static bool starts_with_word(const char *p, size_t n, const char *word, const char *more)
{
    size_t len = strlen(word);
    if (n < len) return false;
    for (size_t i = 0; i < len; i++)
        if (tolower((unsigned char) p[i]) != word[i]) return false;
    return n == len || !(isalnum((unsigned char) p[len]) || strchr(more, p[len]));
}

/* True for "<|User|>" and "<|USER_TOKEN|>", which name a role; "<|end_user|>" and "</user>" end a turn. */
static bool names_role(pi__str s)
{
    bool role = false;
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] == '/') return false;
        if (i && isalpha((unsigned char) s.p[i - 1])) continue;
        if (starts_with_word(s.p + i, s.n - i, "end", "")) return false;
        for (size_t k = 0; k < N_OWN_NAME; k++) role |= starts_with_word(s.p + i, s.n - i, roles[k], "");
    }
    return role;
}

/* True if the text after a token is a role's name, or an expression that contains "role". */
static bool role_follows(const char *p, size_t n)
{
    size_t at = 0;
    while (at < n && at < 64 && strchr(" \t\r\n'\"+~{}()-", p[at]) && p[at]) at++;
    size_t end = at;
    while (end < n && end - at < 64 && p[end] && (is_word(p[end]) || strchr(".[]'\"", p[end]))) end++;
    for (size_t k = 0; k < N_ROLES; k++)
        if (starts_with_word(p + at, end - at, roles[k], "_.[")) return true;
    for (size_t i = at; i + 4 <= end; i++)
        if (!memcmp(p + i, "role", 4)) return true;
    return false;
}

static bool is_known(pi__str s)
{
    for (size_t k = 0; k < N_KNOWN; k++)
        if (strlen(known[k]) == s.n && !memcmp(known[k], s.p, s.n)) return true;
    return false;
}

static void add_turn(pi__vocab *v, int32_t id)
{
    for (int32_t i = 0; i < v->n_turn; i++)
        if (v->turn[i] == id) return;
    if (v->n_turn < PI__MAX_TURNS) v->turn[v->n_turn++] = id;
}

/* Returns the longest special token at the start of the n bytes at p; -1 if there is none. */
static int32_t special_at(const pi__vocab *v, const char *p, size_t n, size_t *len)
{
    int32_t best = -1, node = 0;
    for (size_t i = 0; i < n; i++) {
        node = v->trie[node].child;
        while (node >= 0 && v->trie[node].byte != (unsigned char) p[i]) node = v->trie[node].sibling;
        if (node < 0) break;
        if (v->trie[node].id < 0) continue;
        best = v->trie[node].id;
        *len = i + 1;
    }
    return best;
}

int pi__vocab_load_turns(pi__vocab *v, const pi__gguf *g, pi_error *err)
{
    pi__str t;
    int rc = pi__gguf_get_str(g, "tokenizer.chat_template", &t, err);
    if (rc) return rc;
    for (size_t i = 0, len; t.p && i < t.n; i += len) {
        len = 1;
        int32_t id = v->first_any[(unsigned char) t.p[i]] ? special_at(v, t.p + i, t.n - i, &len) : -1;
        if (id < 0 || id == v->bos || pi__vocab_is_eog(v, id)) continue;
        pi__str s = pi__vocab_spelling(v, id);
        if (is_known(s) || names_role(s) || role_follows(t.p + i + len, t.n - i - len)) add_turn(v, id);
    }
    bool told = v->n_turn > 0;
    for (size_t k = 0; !told && k < N_KNOWN; k++) {
        int32_t id = pi__vocab_find(v, known[k], strlen(known[k]));
        if (id >= 0 && (v->attr[id] == PI__TOK_CONTROL || v->attr[id] == PI__TOK_USER)) add_turn(v, id);
    }
    return PI_OK;
}

int32_t pi__vocab_turn_starts(const pi__vocab *v, int32_t *ids, int32_t cap)
{
    for (int32_t i = 0; i < v->n_turn && i < cap; i++) ids[i] = v->turn[i];
    return v->n_turn;
}
