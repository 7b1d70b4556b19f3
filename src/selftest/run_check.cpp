/* Runs one check on a target and converts its exceptions to an outcome. */
#include "selftest/checks.h"

#include <exception>

namespace selftest {

static outcome run(const entry &c, char *text, size_t size)
{
    try {
        c.run();
    } catch (const failed &f) {
        std::snprintf(text, size, "%s", f.text);
        return CHECK_FAILED;
    } catch (const skipped &s) {
        std::snprintf(text, size, "%s", s.text);
        return CHECK_SKIPPED;
    } catch (const std::exception &e) { /* of the standard library, usually out of memory */
        std::snprintf(text, size, "%s", e.what());
        return CHECK_FAILED;
    }
    if (now->worst <= 1) return CHECK_OK;
    std::snprintf(text, size, "%.160s: a write past the end of a buffer", now->about);
    return CHECK_FAILED;
}

outcome run_check(target &t, const entry &c, char *text, size_t size)
{
    now = &t;
    t.worst = 0;
    t.about[0] = *text = 0;
    const outcome o = run(c, text, size);
    now = nullptr;
    return o;
}

} // namespace selftest
