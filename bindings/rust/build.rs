//! Finds libpagedinfer: in $PAGEDINFER_LIB_DIR, else by pkg-config, else in the linker's path.
use std::{env, process::Command};

fn main() {
    println!("cargo:rerun-if-env-changed=PAGEDINFER_LIB_DIR");
    let dirs = match env::var("PAGEDINFER_LIB_DIR") {
        Ok(dir) => vec![dir],
        Err(_) => pkg_config(),
    };
    for dir in dirs {
        println!("cargo:rustc-link-search=native={dir}");
        println!("cargo:rustc-link-arg=-Wl,-rpath,{dir}");
    }
}

fn pkg_config() -> Vec<String> {
    let out = Command::new("pkg-config").args(["--libs-only-L", "pagedinfer"]).output();
    let text = out.map(|o| String::from_utf8_lossy(&o.stdout).into_owned()).unwrap_or_default();
    text.split_whitespace().filter_map(|w| w.strip_prefix("-L")).map(str::to_owned).collect()
}
