//! Tests with a model: $PAGEDINFER_MODEL, and $PAGEDINFER_CHAT_MODEL for conversations. Without them they pass.
use pagedinfer::{sys, ChatParser, Engine, Options};
use std::env;

fn open(variable: &str) -> Option<Engine> {
    let path = env::var(variable).ok().filter(|p| !p.is_empty())?;
    let options = Options::new().unwrap().set("model", path).unwrap().set("ctx-size", 1024).unwrap();
    Some(Engine::open(options.set("temp", 0).unwrap().set("threads", 2).unwrap()).unwrap())
}

#[test]
fn errors() {
    let e = Options::new().unwrap().set("no-such-key", 1).err().unwrap();
    assert!(e.code == sys::PI_EINVAL && e.name() == "PI_EINVAL" && e.to_string().contains("no-such-key"));
    let e = Engine::open(Options::new().unwrap().set("model", "/none.gguf").unwrap()).err().unwrap();
    assert_eq!(e.code, sys::PI_ENOENT);
    assert_eq!(Options::new().unwrap().set("model", "a\0b").err().unwrap().code, sys::PI_EINVAL);
}

#[test]
fn layout() {
    for (name, size) in sys::LAYOUT {
        println!("layout {name} {size}");
    }
    assert!(sys::LAYOUT.len() > 10 && unsafe { sys::pi_abi_version() } == sys::PI_ABI_VERSION);
}

#[test]
fn requests() {
    let Some(engine) = open("PAGEDINFER_MODEL") else { return };
    let text = "The lighthouse at the end of the pier.";
    assert_eq!(engine.detokenize(&engine.tokenize_flags(text, 0).unwrap()).unwrap(), text);
    assert!(!engine.arch().unwrap().is_empty());
    let prompts = ["Once upon a time", "The capital of France is", "1, 2, 3, 4,"];
    let request = |p: &str| engine.request().unwrap().set("max-tokens", 12).unwrap().prompt(p).unwrap();
    let alone: Vec<String> = prompts.iter().map(|p| request(p).text().unwrap()).collect();
    let together: Vec<_> = prompts.iter().map(|p| request(p).stream().unwrap()).collect();
    for (stream, text) in together.into_iter().zip(&alone) {
        assert_eq!(stream.map(|p| p.unwrap().text).collect::<String>(), *text);
        assert!(!text.is_empty());
    }
    let ids = engine.tokenize(prompts[0]).unwrap();
    let two = engine.request().unwrap().set("n", 2).unwrap().set("max-tokens", 3).unwrap().set("logprobs", 2).unwrap();
    let pieces: Vec<_> = two.prompt_tokens(&ids).unwrap().stream().unwrap().map(|p| p.unwrap()).collect();
    assert_eq!(pieces.iter().filter(|p| p.finish.is_some()).count(), 2);
    assert_eq!(pieces.iter().map(|p| p.tokens.len()).sum::<usize>(), 6);
    assert!(pieces.iter().all(|p| p.logprobs.iter().zip(&p.tokens).all(|(l, id)| l.len() == 3 && l[0].0 == *id)));
}

#[test]
fn ends() {
    let Some(engine) = open("PAGEDINFER_MODEL") else { return };
    let endless = || engine.request().unwrap().set("ignore-eos", true).unwrap().prompt("Tell").unwrap();
    let mut stream = endless().stream().unwrap();
    stream.next().unwrap().unwrap();
    stream.cancel();
    assert_eq!(stream.last().unwrap().unwrap().finish, Some(sys::PI_FINISH_CANCEL));
    drop(endless().stream().unwrap()); // cancels
    drop(endless()); // never submitted
    let long = engine.request().unwrap().prompt(&"x ".repeat(5000)).unwrap();
    assert_eq!(long.text().err().unwrap().code, sys::PI_ETOOBIG);
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| engine.request().unwrap().set("max-tokens", 4).unwrap().prompt("a").unwrap().text().unwrap());
        }
    });
}

#[test]
fn conversation() {
    let Some(engine) = open("PAGEDINFER_CHAT_MODEL") else { return };
    let messages = r#"[{"role": "user", "content": "Name a colour."}]"#;
    assert!(engine.render(messages).unwrap().contains("Name a colour."));
    assert_eq!(engine.render("{").err().unwrap().code, sys::PI_EINVAL);
    let request = engine.request().unwrap().set("max-tokens", 16).unwrap().set("special", true).unwrap();
    let mut parser = ChatParser::new(&engine, None, None).unwrap();
    let mut text = String::new();
    for piece in request.chat(messages, None, None).unwrap().stream().unwrap() {
        let piece = piece.unwrap();
        parser.feed(&piece.text).unwrap();
        text.push_str(&piece.text);
        if let Some(finish) = piece.finish {
            parser.end(finish).unwrap();
        }
    }
    assert!(!text.is_empty() && text.contains(&parser.content()) && !parser.content().is_empty());
    assert!(parser.reasoning().is_empty() && parser.calls().is_empty());
}
