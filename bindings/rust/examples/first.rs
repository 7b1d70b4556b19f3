//! first: prompts that share an engine. Their texts are printed in order.
//!
//!     first MODEL PROMPT...
use pagedinfer::{Engine, Options, Result};

fn run(model: &str, prompts: &[String]) -> Result<()> {
    let options = Options::new()?.set("model", model)?.set("temp", 0)?.set("max-tokens", 48)?;
    let engine = Engine::open(options)?;
    let mut streams = Vec::new();
    for prompt in prompts {
        streams.push(engine.request()?.prompt(prompt)?.stream()?); // all run at the same time
    }
    for stream in streams {
        for piece in stream {
            print!("{}", piece?.text);
        }
        println!();
    }
    Ok(())
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.len() < 2 {
        eprintln!("usage: first MODEL PROMPT...");
        std::process::exit(2);
    }
    if let Err(e) = run(&args[0], &args[1..]) {
        eprintln!("first: {e}");
        std::process::exit(1);
    }
}
