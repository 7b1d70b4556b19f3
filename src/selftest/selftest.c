/* Runs the self-test on request: checks the names of device and checks, then tests that device. Uses only the stack, on
 * the caller's thread. Compiled a second time, with PI_HAVE_EMU, for programs with the emulator. */
#include "selftest/selftest.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"

#if defined(PI_HAVE_CUDA) || defined(PI_HAVE_EMU)
static const char *family_of(int i) { return pi__selftest_device_family(i); }
#else
static const char *family_of(int i)
{
    (void) i;
    return NULL;
}
int pi__selftest_device(pi__selftest *t, const char *name, int32_t index, pi_error *err)
{
    (void) t;
    (void) index;
    return pi__fail(err, PI_EUNSUPPORTED, "device '%.60s' is not in this build", name);
}
#endif

static bool is_unknown(void *ud, const char *word, size_t n)
{
    const char *const **unknown = ud, *name;
    const size_t family = strcspn(word, ". ,");
    for (int i = -1; (name = i < 0 ? "cpu" : family_of(i)); i++)
        if (strlen(name) == (family < n ? family : n) && !memcmp(name, word, strlen(name))) return false;
    *(const char **) (void *) unknown = word;
    return true;
}

static int check_words(const pi__selftest *t, pi_error *err)
{
    const char *unknown = NULL, *name;
    char all[300] = "cpu";
    if (!pi__selftest_any_word(t->checks, is_unknown, &unknown)) return PI_OK;
    for (int i = 0; (name = family_of(i)); i++) snprintf(all + strlen(all), sizeof all - strlen(all), ", %s", name);
    return pi__fail(err, PI_EINVAL, "unknown check '%.*s': give %s, or one of them with .NAME",
                    (int) strcspn(unknown, ", "),
                    unknown, all);
}

int pi__selftest_run(pi__selftest *t, pi_error *err)
{
    const pi__device *dev[PI__MAX_DEVICES];
    int32_t index[PI__MAX_DEVICES];
    const int n = pi__devices_named(t->device, dev, index);
    char name[24];
    int rc = check_words(t, err);
    if (rc) return rc;
    if (n != 1) {
        return pi__fail(err, n ? PI_EINVAL : PI_EUNSUPPORTED, n ? "device '%.60s': give one device; checks that need "
                        "two also use the next one" : "device '%.60s' is not in this build", t->device);
    }
    snprintf(name, sizeof name, strcmp(dev[0]->name, "cpu") ? "%s%d" : "%s", dev[0]->name, (int) index[0]);
    if (t->stress && !strcmp(dev[0]->name, "cpu"))
        return pi__fail(err, PI_EUNSUPPORTED, "device 'cpu': the stress test needs a GPU, give --device cuda");
    pi__selftest_open(t, NULL, '{');
    pi__selftest_number(t, "schema", PI__SELFTEST_SCHEMA);
    pi__selftest_text(t, "version", pi_version());
    rc = strcmp(dev[0]->name, "cpu") ? pi__selftest_device(t, name, index[0], err) : pi__selftest_cpu(t, err);
    if (!rc) rc = pi__selftest_end(t, err);
    pi__free(t->json.p);
    t->json.p = NULL;
    if (rc) return rc;
    return t->n_failed ? pi__fail(err, PI_EDEVICE, "%d of %d checks of %s failed", t->n_failed, t->n_done, name)
                       : PI_OK;
}
