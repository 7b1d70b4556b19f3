/* C interface of test_vision.cpp to vision models and to prompts with images. */
#include "image_jobs.h"
#include "tower_fixture.h"

double simt_vision_difference(int i);
/* Returns the largest difference of case i of tower_expected.h on the emulated device; -1 = there is no case i. Pieces
 * have 64 patches, so that images are computed in several. */
double simt_vision_difference(int i)
{
    fixture f;
    if (i >= N_CASES) return -1;
    make(&f, "emu", tower_cases[i].tower, 0, 1, 64);
    const double worst = difference(&f, &tower_cases[i]);
    print_message("%s %dx%d: largest difference %.2g\n", tower_cases[i].tower, tower_cases[i].width,
                  tower_cases[i].height, worst);
    drop(&f);
    return worst;
}

/* The results of two requests, one with two images, on the emulated device. */
typedef struct image_answers {
    int32_t tokens[2][N_GEN];
    uint64_t rows[2];   /* hashes of all logits after the prompts */
} image_answers;

void simt_image_answers(bool graphs, bool ahead, image_answers *out);
void simt_image_answers(bool graphs, bool ahead, image_answers *out)
{
    enum { WIDTH = 96, DEEP = 2 };
    image_job r[2] = {0};
    char path[256];
    encoder e;
    pi_error err = {0};
    uint64_t rng = 8;
    tiny_path(path, "image-answers");
    assert_int_equal(tiny_write(path, &(tiny_spec) {.arch = "qwen3vl", .sizes = "L=2"}, &err), PI_OK);
    set_encoder(&e, WIDTH, DEEP, PI__SPAN_CAUSAL, true);
    const pi__config c = {.model = path, .device = "emu", .max_batch_tokens = 32, .max_seqs = 2, .max_queue = 4,
                          .block_size = 16, .snapshot_interval = 512, .type_k = PI__F32, .type_v = PI__F32,
                          .kv_tokens = 256, .encoder = &e.fns, .mmproj_cache = 1, .ahead = ahead,
                          .params.cpu.n_threads = 1, .params.cuda.no_graphs = !graphs};
    add_text(&r[0], 2, &rng), add_image(&r[0], 2, 4, 1), add_text(&r[0], 2, &rng), add_image(&r[0], 3, 1, 2);
    add_text(&r[0], 2, &rng);
    add_text(&r[1], 5, &rng);
    r[0].j.spec = r[1].j.spec = PI__SPEC_NONE;
    pi__core *core = job_core(&c);
    submit_all(core, r, 2, ahead ? PI__LOGITS_NONE : PI__LOGITS_GENERATED);
    for (int i = 0; i < 2; i++) {
        job_await(&r[i].j, PI_OK);
        memcpy(out->tokens[i], r[i].j.tokens, sizeof r[i].j.tokens);
        out->rows[i] = r[i].j.rows;
    }
    pi__core_close(core);
    release_images(r, 2);
    unlink(path);
}
