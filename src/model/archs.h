/* The architectures: the only list of them. model.c loads files of these names, and docs/MODELS.md shows the table
 * (tests/scripts/check_docs.py --write).
 *
 * A row: suffix of the pi__arch variable, value of general.architecture, source file, models, specific parts. */
#ifndef PI__ARCHS_H
#define PI__ARCHS_H

#define PI__ARCHS(ARCH)                                                                                                \
    ARCH(llama, "llama", "llama.c", "Llama 2 and 3, Mistral, Mixtral, SmolLM", "interleaved rotation pairs")           \
    ARCH(internlm2, "internlm2", "llama.c", "InternLM 2, 2.5", "interleaved rotation pairs")                           \
    ARCH(mistral3, "mistral3", "llama.c", "Ministral 3, Devstral", "temperature scaling in long contexts")             \
    ARCH(smollm3, "smollm3", "smollm3.c", "SmolLM3", "every fourth layer without RoPE")                                \
    ARCH(qwen2, "qwen2", "qwen.c", "Qwen 2 and 2.5", "biases")                                                         \
    ARCH(qwen2moe, "qwen2moe", "qwen.c", "Qwen 1.5 and 2 with experts", "shared expert with a gate")                   \
    ARCH(qwen3, "qwen3", "qwen.c", "Qwen 3, dense", "norms on heads")                                                  \
    ARCH(qwen3moe, "qwen3moe", "qwen.c", "Qwen 3 with experts, Qwen3-Coder", "norms on heads")                         \
    ARCH(qwen2vl, "qwen2vl", "qwen.c", "Qwen 2-VL and 2.5-VL", "biases, M-RoPE")                                       \
    ARCH(qwen3vl, "qwen3vl", "qwen.c", "Qwen 3-VL, dense", "M-RoPE, DeepStack")                                        \
    ARCH(qwen3vlmoe, "qwen3vlmoe", "qwen.c", "Qwen 3-VL with experts", "M-RoPE, DeepStack")                            \
    ARCH(phi3, "phi3", "phi3.c", "Phi 3, 3.5, 4, 4-mini", "LongRoPE")                                                  \
    ARCH(gemma, "gemma", "gemma2.c", "Gemma 1, CodeGemma", "GELU, scaled embeddings")                                  \
    ARCH(gemma2, "gemma2", "gemma2.c", "Gemma 2", "soft caps")                                                         \
    ARCH(gemma3, "gemma3", "gemma3.c", "Gemma 3", "windows")                                                           \
    ARCH(gemma_embedding, "gemma-embedding", "gemma3.c", "EmbeddingGemma", "bidirectional attention, dense heads")     \
    ARCH(gpt_oss, "gpt-oss", "gpt_oss.c", "gpt-oss 20B and 120B", "expert biases, clamped SwiGLU, sinks")              \
    ARCH(glm4, "glm4", "glm4.c", "GLM-4-0414, GLM-Z1", "norms before and after blocks, half of each head rotated")     \
    ARCH(glm4moe, "glm4moe", "glm4moe.c", "GLM 4.5, 4.6 and 4.7, Air too",                                             \
         "sigmoid gates, first layers without experts, draft head")                                                    \
    ARCH(dots1, "dots1", "dots1.c", "dots.llm1", "sigmoid gates, norms on heads")                                      \
    ARCH(bailingmoe2, "bailingmoe2", "dots1.c", "Ling 2, Ring 2", "expert groups")                                     \
    ARCH(deepseek2, "deepseek2", "deepseek2.c", "DeepSeek V2, V3, R1; Kimi K2; GLM 4.7 Flash; Mistral Large 3",        \
         "latent attention (block_mla.c), expert groups, draft heads")                                                 \
    ARCH(mistral4, "mistral4", "deepseek2.c", "Mistral Small 4", "latent attention, temperature scaling")              \
    ARCH(deepseek32, "deepseek32", "deepseek2.c", "DeepSeek V3.2", "latent attention to rows of an indexer")           \
    ARCH(glm_dsa, "glm-dsa", "deepseek2.c", "GLM 5, 5.1, 5.2", "latent attention to rows of an indexer")               \
    ARCH(kimi_linear, "kimi-linear", "kimi.c", "Kimi Linear 48B-A3B",                                                  \
         "Kimi delta attention (block_kda.c), latent attention without RoPE")                                          \
    ARCH(bailingmoe3, "bailingmoe3", "kimi.c", "Ling 3 Tiny and Flash",                                                \
         "Kimi delta attention, latent attention with gates of heads, expert groups")                                  \
    ARCH(minimax_m2, "minimax-m2", "minimax_m2.c", "MiniMax M2, M2.1", "one norm over all heads")                      \
    ARCH(granite, "granite", "granite.c", "Granite 3; Granite 4 without Mamba layers",                                 \
         "multipliers, folded into weights at load")                                                                   \
    ARCH(granitemoe, "granitemoe", "granite.c", "Granite 3 and 4 with experts", "multipliers, shared expert")          \
    ARCH(granitehybrid, "granitehybrid", "granite.c", "Granite 4 H", "Mamba-2 layers (block_ssd.c), multipliers")      \
    ARCH(nemotron_h, "nemotron_h", "hybrid.c", "Nemotron-H, Nemotron Nano 2",                                          \
         "one block per layer: Mamba-2, attention or feed-forward")                                                    \
    ARCH(nemotron_h_moe, "nemotron_h_moe", "hybrid.c", "Nemotron 3 Nano and Super",                                    \
         "one block per layer, experts without a gate, latent experts")                                                \
    ARCH(falcon_h1, "falcon-h1", "hybrid.c", "Falcon-H1 0.5B to 34B", "Mamba-2 beside attention in each layer")        \
    ARCH(mamba2, "mamba2", "hybrid.c", "Mamba-2, Codestral Mamba", "Mamba-2 layers only")                              \
    ARCH(mamba, "mamba", "hybrid.c", "Mamba, Falcon Mamba", "Mamba layers only (block_mamba.c)")                       \
    ARCH(jamba, "jamba", "hybrid.c", "Jamba, Jamba Reasoning", "Mamba layers, attention without RoPE, experts")        \
    ARCH(minicpm, "minicpm", "granite.c", "MiniCPM 1B and 2B", "multipliers")                                          \
    ARCH(nanbeige, "nanbeige", "nanbeige.c", "Nanbeige 4.2", "layers that run several times")                          \
    ARCH(seed_oss, "seed_oss", "seed_oss.c", "Seed-OSS 36B", "biases")                                                 \
    ARCH(pangu_embedded, "pangu-embedded", "seed_oss.c", "openPangu-Embedded 1B and 7B", "biases")                     \
    ARCH(olmoe, "olmoe", "olmo2.c", "OLMoE", "experts, one norm over all heads")                                       \
    ARCH(olmo2, "olmo2", "olmo2.c", "OLMo 2, OLMo 3", "norms after blocks, one norm over all heads, windows")          \
    ARCH(exaone4, "exaone4", "exaone4.c", "EXAONE 4.0; text of 4.5", "norms after blocks, windows, NoPE layers")       \
    ARCH(exaone_moe, "exaone-moe", "exaone4.c", "K-EXAONE", "sigmoid gates, windows, NoPE layers")                     \
    ARCH(ernie4_5, "ernie4_5", "ernie.c", "ERNIE 4.5 0.3B", "interleaved rotation pairs")                              \
    ARCH(ernie4_5_moe, "ernie4_5-moe", "ernie.c", "ERNIE 4.5 21B-A3B, 300B-A47B",                                      \
         "softmax gates with a correction for the choice")                                                             \
    ARCH(hunyuan_dense, "hunyuan-dense", "hunyuan.c", "Hunyuan 0.5B to 7B, Hunyuan-MT", "norms on heads after RoPE")   \
    ARCH(hunyuan_moe, "hunyuan-moe", "hunyuan.c", "Hunyuan A13B", "norms on heads after RoPE, shared expert")          \
    ARCH(arcee, "arcee", "arcee.c", "Arcee AFM 4.5B", "squared ReLU without a gate")                                   \
    ARCH(apertus, "apertus", "arcee.c", "Apertus 8B and 70B", "xIELU without a gate")                                  \
    ARCH(starcoder2, "starcoder2", "arcee.c", "StarCoder 2", "LayerNorm, biases, GELU without a gate")                 \
    ARCH(nemotron, "nemotron", "arcee.c", "Nemotron 4, Minitron", "LayerNorm, squared ReLU without a gate")            \
    ARCH(jais2, "jais2", "arcee.c", "Jais 2", "LayerNorm, biases, squared ReLU without a gate")                        \
    ARCH(stablelm, "stablelm", "stablelm.c", "StableLM 3B, StableLM 2 1.6B", "LayerNorm, part of each head rotated")   \
    ARCH(command_r, "command-r", "cohere.c", "Command R, Aya 23", "parallel blocks, LayerNorm")                        \
    ARCH(cohere2, "cohere2", "cohere.c", "Command R7B, Command A", "parallel blocks, LayerNorm, windows")              \
    ARCH(mellum, "mellum", "mellum.c", "Mellum 2", "windows with a RoPE base of their own, experts")                   \
    ARCH(afmoe, "afmoe", "afmoe.c", "Trinity Nano, Mini, Large", "gates of attention, norms before and after blocks") \
    ARCH(laguna, "laguna", "afmoe.c", "Laguna XS, S, M", "softplus gates, numbers of heads per layer")                 \
    ARCH(muse_glimmer, "muse-glimmer", "afmoe.c", "Muse Glimmer 30B, its text",                                        \
         "gates of attention, norm of embeddings, norms before and after blocks")                                      \
    ARCH(granite_swa, "granite_swa", "granite.c", "Granite with windows", "multipliers, windows, sinks")               \
    ARCH(step35, "step35", "step35.c", "Step 3.5 and 3.7 Flash", "gates of heads, numbers of heads per layer")         \
    ARCH(hy_v3, "hy_v3", "dots1.c", "Hunyuan 3", "sigmoid gates, norms on heads, draft head")                          \
    ARCH(mimo2, "mimo2", "mimo2.c", "MiMo V2 Flash, V2.5", "windows with sinks, small heads of values")                \
    ARCH(plamo3, "plamo3", "plamo.c", "PLaMo 3", "windows, norms before and after blocks, tokenizer plamo2")           \
    ARCH(phimoe, "phimoe", "phimoe.c", "Phi 3.5 MoE", "SparseMixer router, LayerNorm, biases")                         \
    ARCH(qwen35, "qwen35", "qwen35.c", "Qwen 3.5, 3.6 and 3.8", "gated delta nets, draft heads (MTP)")                 \
    ARCH(qwen35moe, "qwen35moe", "qwen35.c", "Qwen 3.5 and 3.6 with experts", "gated delta nets, draft heads (MTP)")   \
    ARCH(qwen3next, "qwen3next", "qwen35.c", "Qwen3-Next, Qwen3-Coder-Next", "gated delta nets, draft heads (MTP)")    \
    ARCH(lfm2, "lfm2", "lfm2.c", "LFM2, LFM2.5", "gated short convolutions")                                           \
    ARCH(lfm2moe, "lfm2moe", "lfm2.c", "LFM2 8B-A1B, 24B-A2B", "gated short convolutions, sigmoid gates")              \
    ARCH(gemma4, "gemma4", "gemma4.c", "Gemma 4, dense, with experts, E-series",                                       \
         "per-layer embeddings, shared caches")                                                                        \
    ARCH(gemma4_assistant, "gemma4-assistant", "gemma4.c", "drafter of Gemma 4", "centroid heads")                     \
    ARCH(deepseek4, "deepseek4", "deepseek4.c", "DeepSeek V4, files of llama.cpp's converter and of ds4",              \
         "compressed and selected entries, hyper-connections, draft heads")                                            \
    ARCH(bert, "bert", "bert.c", "BGE, MiniLM, E5, XLM-RoBERTa, cross-encoders",                                       \
         "LayerNorm, GELU, learned positions, WordPiece and Unigram")                                                  \
    ARCH(nomic_bert, "nomic-bert", "bert.c", "Nomic Embed 1 and 1.5", "RoPE, gates")                                   \
    ARCH(nomic_bert_moe, "nomic-bert-moe", "bert.c", "Nomic Embed 2", "RoPE, experts without a gate")                  \
    ARCH(jina_bert_v2, "jina-bert-v2", "bert.c", "Jina Embeddings 2, for code too; Jina Reranker 1",                   \
         "ALiBi, gates")                                                                                               \
    ARCH(jina_bert_v3, "jina-bert-v3", "bert.c", "Jina Embeddings 3", "RoPE, biases")                                  \
    ARCH(modern_bert, "modern-bert", "modern_bert.c", "ModernBERT, Granite Embedding, GTE ModernBERT",                 \
         "windows on both sides, norm of embeddings")                                                                  \
    ARCH(eurobert, "eurobert", "modern_bert.c", "EuroBERT, Jina Embeddings 5", "bidirectional attention")              \
    ARCH(neo_bert, "neo-bert", "modern_bert.c", "NeoBERT", "bidirectional attention, stacked heads")                   \
    ARCH(t5encoder, "t5encoder", "t5.c", "encoders of T5, Flan-T5, UMT5", "biases of scores by distance, Unigram")     \
    ARCH(dflash, "dflash", "dflash.c", "block drafters", "target features, blocks of masks")                           \
    ARCH(dflash_qwen35, "qwen35-dflash-draft", "dflash.c", "block drafters", "target features, blocks of masks")       \
    ARCH(dflash_gemma4, "gemma4-dflash-draft", "dflash.c", "block drafters", "target features, blocks of masks")

#endif
