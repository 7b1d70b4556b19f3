#!/usr/bin/env python3
"""Writes tests/golden/vectors_NAME.json: results of transformers, in float32, with the weights of random encoders.

    gen_vectors.py [NAME...]     needs torch (CPU), transformers and gguf; PAGEDINFER_BUILD: with tests/tool_tiny_model

Like gen_reference.py, for embedding models. For a few texts it records the tokens, the mean of the tokens' vectors and
the vector of one token; for a pair of texts, the scores of a cross-encoder. Each model also runs with single features
left out (MUTATIONS). If that changes no value by CLEAR, the script fails. tests/scripts/check_embed.py reads the
goldens."""
import json, os, subprocess, sys, tempfile

import gguf, numpy, torch, transformers

import reference_encoders

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.environ.get('PAGEDINFER_BUILD', os.path.join(HERE, '../../build'))
TOOL, BIN = os.path.join(BUILD, 'tests', 'tool_tiny_model'), os.environ.get('PAGEDINFER_BIN', os.path.join(BUILD, 'pagedinfer'))
TEXTS = ['fox', 'the Quick brown fox (jumped)', 'over the lazy dog, again and again, ' * 5]
PAIR = ('who is quick?', 'the brown fox jumped')
CLEAR = 1e-3
BERT = {'token_embd': 'embeddings.word_embeddings', 'position_embd': 'embeddings.position_embeddings',
        'token_types': 'embeddings.token_type_embeddings', 'token_embd_norm': 'embeddings.LayerNorm',
        'attn_q': 'attention.self.query', 'attn_k': 'attention.self.key', 'attn_v': 'attention.self.value',
        'attn_output': 'attention.output.dense', 'attn_output_norm': 'attention.output.LayerNorm', 'ffn_up': 'intermediate.dense',
        'ffn_down': 'output.dense', 'layer_output_norm': 'output.LayerNorm', 'cls': 'pooler.dense', 'cls.output': 'classifier'}
LINEAR = {'attn_q': 'self_attn.q_proj', 'attn_k': 'self_attn.k_proj', 'attn_v': 'self_attn.v_proj', 'attn_output': 'self_attn.o_proj',
          'ffn_gate': 'mlp.gate_proj', 'ffn_up': 'mlp.up_proj', 'ffn_down': 'mlp.down_proj'}
NOMIC = {**BERT, **LINEAR, 'attn_output_norm': 'post_attention_layernorm', 'layer_output_norm': 'post_mlp_layernorm'}
JINA = {**NOMIC, 'ffn_up': 'mlp.fc1', 'ffn_down': 'mlp.fc2'}
EURO = {**LINEAR, 'token_embd': 'embed_tokens', 'output_norm': 'norm', 'attn_norm': 'input_layernorm', 'ffn_norm': 'post_attention_layernorm'}
MODERN = {'token_embd': 'embeddings.tok_embeddings', 'token_embd_norm': 'embeddings.norm', 'output_norm': 'final_norm', 'attn_norm': 'attn_norm',
          'attn_qkv': 'attn.Wqkv', 'attn_output': 'attn.Wo', 'ffn_norm': 'mlp_norm', 'ffn_up': 'mlp.Wi', 'ffn_down': 'mlp.Wo'}
GEMMA = {**LINEAR, 'token_embd': 'embed_tokens', 'output_norm': 'norm', 'attn_norm': 'input_layernorm',
         'attn_q_norm': 'self_attn.q_norm', 'attn_k_norm': 'self_attn.k_norm', 'post_attention_norm': 'post_attention_layernorm',
         'ffn_norm': 'pre_feedforward_layernorm', 'post_ffw_norm': 'post_feedforward_layernorm'}
T5 = {'token_embd': 'shared', 'enc.output_norm': 'encoder.final_layer_norm', 'attn_norm': 'layer.0.layer_norm', 'attn_q': 'layer.0.SelfAttention.q',
      'attn_k': 'layer.0.SelfAttention.k', 'attn_v': 'layer.0.SelfAttention.v', 'attn_output': 'layer.0.SelfAttention.o',
      'attn_rel_b': 'layer.0.SelfAttention.relative_attention_bias', 'ffn_norm': 'layer.1.layer_norm', 'ffn_down': 'layer.1.DenseReluDense.wo'}
RELU_T5 = {**T5, 'ffn_up': 'layer.1.DenseReluDense.wi'}
GATED_T5 = {**T5, 'ffn_gate': 'layer.1.DenseReluDense.wi_0', 'ffn_up': 'layer.1.DenseReluDense.wi_1'}


def bert(k, n_labels):
    config = transformers.BertConfig(**sizes(k), layer_norm_eps=k('attention.layer_norm_epsilon'), type_vocab_size=2, num_labels=n_labels or 1)
    return transformers.BertForSequenceClassification(config) if n_labels else transformers.BertModel(config, add_pooling_layer=False)


def nomic(k, n_labels):
    config = transformers.NomicBertConfig(**sizes(k), layer_norm_eps=k('attention.layer_norm_epsilon'), type_vocab_size=2,
                                          rope_parameters={'rope_type': 'default', 'rope_theta': k('rope.freq_base')})
    return transformers.NomicBertModel(config, add_pooling_layer=False)


def gemma(k, n_labels):
    every = k('attention.sliding_window_pattern')
    config = transformers.Gemma3TextConfig(
        **sizes(k), num_key_value_heads=k('attention.head_count_kv'), head_dim=k('attention.key_length'), rms_norm_eps=1e-6,
        query_pre_attn_scalar=k('attention.key_length'), sliding_window=k('attention.sliding_window'), use_bidirectional_attention=True,
        layer_types=['sliding_attention' if (i + 1) % every else 'full_attention' for i in range(k('block_count'))],
        rope_parameters={'sliding_attention': {'rope_type': 'default', 'rope_theta': 1e4},
                         'full_attention': {'rope_type': 'default', 'rope_theta': 1e6}}, pad_token_id=None)
    return transformers.Gemma3TextModel(config)


def jina(k, n_labels):
    config = transformers.JinaEmbeddingsV3Config(**sizes(k), layer_norm_eps=k('attention.layer_norm_epsilon'), type_vocab_size=1,
                                                 rope_parameters={'rope_type': 'default', 'rope_theta': k('rope.freq_base')})
    return transformers.JinaEmbeddingsV3Model(config, add_pooling_layer=False)


def euro(k, n_labels):
    config = transformers.EuroBertConfig(**sizes(k), num_key_value_heads=k('attention.head_count_kv'), rms_norm_eps=1e-5, pad_token_id=None,
                                         rope_parameters={'rope_type': 'default', 'rope_theta': k('rope.freq_base')})
    return transformers.EuroBertModel(config)


def modern(k, n_labels):
    every = k('attention.sliding_window_pattern')
    config = transformers.ModernBertConfig(
        **sizes(k), norm_eps=k('attention.layer_norm_epsilon'), local_attention=k('attention.sliding_window'), hidden_activation='gelu',
        layer_types=['sliding_attention' if i % every else 'full_attention' for i in range(k('block_count'))], pad_token_id=None,
        rope_parameters={'sliding_attention': {'rope_type': 'default', 'rope_theta': k('rope.freq_base_swa')},
                         'full_attention': {'rope_type': 'default', 'rope_theta': k('rope.freq_base')}})
    return transformers.ModernBertModel(config)


def t5(k, n_labels, gated=False):
    family = transformers.UMT5Config if gated else transformers.T5Config
    config = family(vocab_size=k('vocab'), d_model=k('embedding_length'), d_kv=k('attention.key_length'), d_ff=k('feed_forward_length'),
                    num_layers=k('block_count'), num_heads=k('attention.head_count'), layer_norm_epsilon=k('attention.layer_norm_rms_epsilon'),
                    relative_attention_num_buckets=k('attention.relative_buckets_count'), feed_forward_proj='gated-gelu' if gated else 'relu',
                    attn_implementation='eager')
    return (transformers.UMT5EncoderModel if gated else transformers.T5EncoderModel)(config)


def umt5(k, n_labels): return t5(k, n_labels, True)


def sizes(k):
    return dict(vocab_size=k('vocab'), hidden_size=k('embedding_length'), num_hidden_layers=k('block_count'),
                num_attention_heads=k('attention.head_count'), intermediate_size=k('feed_forward_length'),
                max_position_embeddings=k('context_length'), attn_implementation='eager')


# Rows with another architecture's name in the file
ARCHS = {'jina-bert-v2-code': 'jina-bert-v2', 't5encoder-gated': 't5encoder'}
# NAME: (function that makes the model, names of its tensors, prefix of its layers), or None: reference_encoders.py
MODELS = {'bert': (bert, BERT, 'encoder.layer.'), 'nomic-bert': (nomic, NOMIC, 'layers.'), 'gemma-embedding': (gemma, GEMMA, 'layers.'),
          'jina-bert-v3': (jina, JINA, 'layers.'), 'eurobert': (euro, EURO, 'layers.'), 'modern-bert': (modern, MODERN, 'layers.'),
          't5encoder': (t5, RELU_T5, 'encoder.block.'), 't5encoder-gated': (umt5, GATED_T5, 'encoder.block.'),
          'nomic-bert-moe': None, 'jina-bert-v2': None, 'jina-bert-v2-code': None, 'neo-bert': None}
# Parts of tensor names. A matching tensor is set to 0, or to 1 for weights of norms. (A bias of keys is missing: it
# adds the same value to all scores of a row.)
MUTATIONS = {'bert': ['position_embeddings.weight', 'token_type_embeddings.weight', 'query.bias', 'value.bias',
                      'attention.output.dense.bias', 'intermediate.dense.bias', 'output.LayerNorm.bias', 'LayerNorm.weight'],
             'nomic-bert': ['token_type_embeddings.weight', 'layernorm.weight', 'layernorm.bias', 'gate_proj.weight'],
             'gemma-embedding': ['layernorm.weight', 'q_norm.weight', 'k_norm.weight'],
             'jina-bert-v3': ['token_type_embeddings.weight', 'q_proj.bias', 'v_proj.bias', 'o_proj.bias', 'fc1.bias', 'fc2.bias', 'layernorm.bias'],
             'eurobert': ['layernorm.weight', 'norm.weight'],
             'modern-bert': ['embeddings.norm.weight', 'attn_norm.weight', 'mlp_norm.weight', 'final_norm.weight'],
             't5encoder': ['relative_attention_bias', 'layer_norm.weight'],
             't5encoder-gated': ['block.0.layer.0.SelfAttention.relative_attention_bias', 'block.1.layer.0.SelfAttention.relative_attention_bias'],
             'nomic-bert-moe': ['attn_qkv_bias', 'attn_output_bias', 'ffn_up_bias', 'ffn_down_bias', 'ffn_gate_inp', 'exps'],
             'jina-bert-v2': ['alibi_slopes', 'token_types', 'attn_q_bias', 'attn_v_bias', 'attn_output_bias', 'ffn_gate', 'ffn_down_bias'],
             'jina-bert-v2-code': ['alibi_slopes', 'attn_q_norm_weight', 'attn_k_norm_weight', 'attn_q_norm_bias', 'attn_q_bias', 'attn_k_bias', 'attn_norm_2_bias'],
             'neo-bert': ['attn_norm_weight', 'ffn_norm_weight', 'output_norm_weight']}


def load(name, path, n_labels=0):
    reader = gguf.GGUFReader(path)
    field = lambda key: 313 if key == 'vocab' else reader.fields[f'{ARCHS.get(name, name)}.{key}'].contents()
    tensors = {t.name: torch.from_numpy(numpy.array(t.data, dtype=numpy.float32)) for t in reader.tensors}
    if not MODELS[name]: return reference_encoders.Encoder(ARCHS.get(name, name), field, tensors).eval()
    make, names, layers = MODELS[name]
    model, weights = make(field, n_labels), {}
    for full, w in tensors.items():
        stem, kind = full.rsplit('.', 1)
        layer = ''
        if stem.startswith('enc.blk.'): stem = stem[4:]
        if stem.startswith('blk.'): layer, stem = layers + stem.split('.')[1] + '.', stem.split('.', 2)[2]
        if name == 'gemma-embedding' and stem.endswith('norm'): w = w - 1
        parts = dict(zip(('attn_q', 'attn_k', 'attn_v'), w.chunk(3))) if stem == 'attn_qkv' and name != 'modern-bert' else {stem: w}
        for stem, w in parts.items():
            inner = 'bert.' if n_labels and stem != 'cls.output' else ''
            weights[f'{inner}{layer}{names[stem]}.{kind}'] = w
    if name.startswith('t5'): weights['encoder.embed_tokens.weight'] = weights['shared.weight']
    model.load_state_dict(weights, strict=True)
    return model.float().eval()


def vectors(model, ids):
    with torch.no_grad(): out = model(torch.tensor([ids]))
    return (out if torch.is_tensor(out) else out.last_hidden_state[0]).numpy()


def tokens(path, text):
    run = subprocess.run([BIN, 'tokenize', '-m', path, '--ids', '-p', text], stdout=subprocess.PIPE, check=True)
    return [int(x) for x in json.loads(run.stdout)]


def numbers(v): return [float(f'{x:.7g}') for x in v]


def prove(name, path, ids):
    """Fails if the model gives nearly the same vectors with a feature left out."""
    want = vectors(load(name, path), ids)
    for part in MUTATIONS[name]:
        other = load(name, path)
        for n, p in other.named_parameters():
            if part in n: p.data.fill_(1.0 if 'norm' in n.lower() and n.endswith('weight') and name != 'gemma-embedding' else 0.0)
        moved = abs(vectors(other, ids) - want).max()
        print(f'{name}: without {part} values move by {moved:.4f}')
        if moved < CLEAR: sys.exit(f'{name}: {part} would not be missed')


def scores(name, folder):
    """Returns the scores of a pair as [CLS] query [SEP] document [SEP]; the second text has token type 1."""
    path = os.path.join(folder, 'rank.gguf')
    subprocess.run([TOOL, path, '512', name, '0', 'F32', 'j=2 q=96 y=1'], check=True)
    a, b = (tokens(path, text) for text in PAIR)
    ids, types = a + b[1:], [0] * len(a) + [1] * (len(b) - 1)
    model = load(name, path, 2)
    with torch.no_grad(): out = [model(torch.tensor([ids]), token_type_ids=torch.tensor([t])).logits[0].numpy() for t in (types, [0] * len(ids))]
    if abs(out[0] - out[1]).max() < CLEAR: sys.exit(f'{name}: types would not be missed')
    return {'query': PAIR[0], 'document': PAIR[1], 'scores': numbers(out[0])}


def golden(name, folder):
    path, cases = os.path.join(folder, 'model.gguf'), []
    subprocess.run([TOOL, path, '512', name], check=True)
    model = load(name, path)
    for text in TEXTS:
        ids = tokens(path, text)
        v = vectors(model, ids)
        row = len(ids) // 2
        cases.append({'text': text, 'ids': ids, 'mean': numbers(v.mean(0)), 'row': row, 'token': numbers(v[row])})
    prove(name, path, cases[-1]['ids'])
    out = {'transformers': transformers.__version__, 'model': type(model).__name__, 'cases': cases}
    if name == 'bert': out['pair'] = scores(name, folder)
    return out


def main():
    torch.set_num_threads(1)
    for name in sys.argv[1:] or MODELS:
        with tempfile.TemporaryDirectory() as folder:
            text = json.dumps(golden(name, folder), separators=(',', ':')).replace('{"text"', '\n{"text"')
        out = os.path.join(HERE, '../golden', f'vectors_{name}.json')
        with open(out, 'w') as f: f.write(text + '\n')
        print(f'{os.path.relpath(out)}: {len(text)} bytes')


if __name__ == '__main__': main()
