/* replay.c: runs a fuzzer's entry point over files instead of libFuzzer.
 *
 *     fuzz_NAME FILE|FOLDER...
 *
 * Reads every named file, and every file of a named folder, and passes it to LLVMFuzzerTestOneInput. Always passes the
 * empty input too. A missing folder counts as empty, because a fuzzer may have no seeds. Exit status 1 = a file could
 * not be read. Single-threaded, with one file in memory at a time. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Allocates exactly size bytes, so that ASan detects a read past the end. */
static int replay_file(const char *path) {
    int rc = 1;
    uint8_t *data = NULL;
    FILE *f = fopen(path, "rb");
    if (!f || fseek(f, 0, SEEK_END) != 0) goto out;
    long size = ftell(f);
    if (size < 0 || fseek(f, 0, SEEK_SET) != 0) goto out;
    data = malloc(size > 0 ? (size_t)size : 1);
    if (!data || fread(data, 1, (size_t)size, f) != (size_t)size) goto out;
    LLVMFuzzerTestOneInput(data, (size_t)size);
    rc = 0;
out:
    if (rc) fprintf(stderr, "%s: cannot read\n", path);
    if (f) fclose(f);
    free(data);
    return rc;
}

static int replay(const char *path, size_t *count) {
    struct stat st;
    if (stat(path, &st) != 0) return 0;
    if (!S_ISDIR(st.st_mode)) {
        (*count)++;
        return replay_file(path);
    }
    int rc = 0;
    struct dirent **list = NULL;
    int n = scandir(path, &list, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        char child[4096];
        if (list[i]->d_name[0] != '.') {
            int len = snprintf(child, sizeof child, "%s/%s", path, list[i]->d_name);
            rc |= len < 0 || (size_t)len >= sizeof child || replay(child, count);
        }
        free(list[i]);
    }
    free(list);
    return rc;
}

int main(int argc, char **argv) {
    int rc = 0;
    size_t count = 1;
    static const uint8_t empty[1];
    LLVMFuzzerTestOneInput(empty, 0);
    for (int i = 1; i < argc; i++) rc |= replay(argv[i], &count);
    printf("%zu inputs\n", count);
    return rc;
}
