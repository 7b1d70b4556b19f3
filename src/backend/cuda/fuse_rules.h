/* The rules by which ops share a launch: name, ops, result. Option cuda-fuse takes the names of rules that are
 * disabled. No code: the API reads the names on machines without CUDA, too. */
#ifndef PI__CUDA_FUSE_RULES_H
#define PI__CUDA_FUSE_RULES_H

/* In the column of ops, "then" separates the launch at the end of the plan from the op that comes next. */
#define PI__PLAN_RULES(X)                                                                                              \
    X(glu, "linear then linear", "gate, up and their activation are one launch, which packs the input of down")        \
    X(added, "linear then add_norm", "with many rows the matmul kernel adds its results to the residual")              \
    X(adds, "linear, sums, add_norm or norm then add_norm or norm",                                                    \
      "up to two adds and norms are in the epilogue, or share a launch with the sums")                                 \
    X(sums, "sums of moe then linear", "sums of experts wait for an independent linear, and join its epilogue")        \
    X(gated, "sums of moe then add_gated", "the shared expert's gated results join the sums")                          \
    X(pack, "linear, attention, gdn, head_linear, sums or adds then linear", "the next linear's input is packed")      \
    X(heads, "linear then qkv", "norms and rotation of the heads, and their write to the cache, are in the epilogue")  \
    X(routes, "linear then moe", "the router's epilogue computes the routes and packs the experts' input")             \
    X(beside, "linear then moe, linear", "the router's epilogue also packs the input of the shared expert's down")     \
    X(split, "linear then moe, linear",                                                                                \
      "matrices that the router's launch has no space for wait for the experts, and become the shared expert's glu")   \
    X(downs, "moe then linear", "down of the experts and of the shared expert are one launch")                         \
    X(latent, "linear then mla_qkv or compress", "rows, compressors and queries are beside the linear, or one launch") \
    X(queries, "mla_qkv then indexer or sparse; head_linear then mla_qkv", "one launch applies mla_qkv to queries")    \
    X(groups, "sparse then head_linear", "results of sparse are written as the packed input of head_linear")           \
    X(streams, "linear then hyper_post, linear, hyper_pre", "work on residual streams is one launch, or in that linear")

#endif
