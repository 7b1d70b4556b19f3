//! libpagedinfer for Rust: an inference engine with a paged cache, for many concurrent requests.
//!
//! ```no_run
//! use pagedinfer::{Engine, Options};
//! let engine = Engine::open(Options::new()?.set("model", "gemma.gguf")?)?;
//! let request = engine.request()?.set("max-tokens", 64)?.prompt("Once upon a time")?;
//! for piece in request.stream()? {
//!     print!("{}", piece?.text);
//! }
//! # Ok::<(), pagedinfer::Error>(())
//! ```
//!
//! Options are named as in the C library; `docs/OPTIONS.md` lists them. [`sys`] has the C declarations, for functions
//! without a wrapper. An [`Engine`] can be shared by threads. A [`Request`] borrows its engine. If a [`Stream`] is leaked
//! (`std::mem::forget`), its engine is leaked too.
#![warn(missing_docs)]

pub mod sys;

use std::ffi::{CStr, CString};
use std::fmt;
use std::os::raw::{c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{channel, Receiver, Sender};

/// A failed call: the code of the library and its text, which names the cause and the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// `sys::PI_E*`
    pub code: i32,
    /// The text of the library.
    pub message: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

impl Error {
    fn new(code: c_int, message: &str) -> Error {
        let message = if message.is_empty() { string(unsafe { sys::pi_strerror(code) }) } else { message.to_owned() };
        Error { code, message }
    }
    /// The name of the code, "PI_EINVAL" for example.
    pub fn name(&self) -> String {
        string(unsafe { sys::pi_err_name(self.code) })
    }
}

/// The result of a call.
pub type Result<T> = std::result::Result<T, Error>;

/// Copies a C string; null is "".
fn string(p: *const c_char) -> String {
    if p.is_null() {
        return String::new();
    }
    unsafe { CStr::from_ptr(p) }.to_string_lossy().into_owned()
}

fn c_string(text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| Error::new(sys::PI_EINVAL, "a text for the library has a zero byte"))
}

/// Calls f with a pi_error; a negative result is an error.
fn checked<T: Copy + Into<i64>>(f: impl FnOnce(*mut sys::pi_error) -> T) -> Result<T> {
    let mut err = sys::pi_error { code: 0, msg: [0; 240] };
    let got = f(&mut err);
    let code: i64 = got.into();
    if code >= 0 {
        return Ok(got);
    }
    let text = if i64::from(err.code) == code { string(err.msg.as_ptr()) } else { String::new() };
    Err(Error::new(code as c_int, &text))
}

/// Fills a vector by a call that returns the full length.
fn filled<T: Copy + Default>(guess: usize, mut f: impl FnMut(*mut T, usize, *mut sys::pi_error) -> i64) -> Result<Vec<T>> {
    let mut out = vec![T::default(); guess];
    loop {
        let n = checked(|err| f(out.as_mut_ptr(), out.len(), err))? as usize;
        let whole = n <= out.len();
        out.resize(n, T::default());
        if whole {
            return Ok(out);
        }
    }
}

/// Options of an engine.
pub struct Options(*mut sys::pi_options);

unsafe impl Send for Options {}

impl Options {
    /// Creates options with every default.
    pub fn new() -> Result<Options> {
        let o = unsafe { sys::pi_options_new() };
        if o.is_null() { Err(Error::new(sys::PI_ENOMEM, "")) } else { Ok(Options(o)) }
    }
    /// Sets an option.
    pub fn set(self, key: &str, value: impl ToString) -> Result<Options> {
        let (key, value) = (c_string(key)?, c_string(&value.to_string())?);
        checked(|err| unsafe { sys::pi_options_set(self.0, key.as_ptr(), value.as_ptr(), err) })?;
        Ok(self)
    }
}

impl Drop for Options {
    fn drop(&mut self) {
        unsafe { sys::pi_options_free(self.0) }
    }
}

/// A loaded model with its cache and scheduler.
pub struct Engine {
    e: *mut sys::pi_engine,
    n_requests: AtomicUsize, // requests that are not freed
}

unsafe impl Send for Engine {}
unsafe impl Sync for Engine {}

impl Engine {
    /// Loads a model.
    pub fn open(options: Options) -> Result<Engine> {
        let mut e = ptr::null_mut();
        checked(|err| unsafe { sys::pi_engine_open(&mut e, options.0, err) })?;
        Ok(Engine { e, n_requests: AtomicUsize::new(0) })
    }
    /// The C object, for functions of [`sys`].
    pub fn as_ptr(&self) -> *mut sys::pi_engine {
        self.e
    }
    /// The architecture of the model.
    pub fn arch(&self) -> Result<String> {
        let mut info: sys::pi_info = unsafe { std::mem::zeroed() };
        info.size = std::mem::size_of_val(&info) as u32;
        checked(|_| unsafe { sys::pi_engine_info(self.e, &mut info) })?;
        Ok(string(info.arch))
    }
    /// Tokenizes text as a prompt: with BOS, and with control tokens.
    pub fn tokenize(&self, text: &str) -> Result<Vec<i32>> {
        self.tokenize_flags(text, sys::PI_TOK_BOS | sys::PI_TOK_SPECIAL)
    }
    /// Tokenizes text with `sys::PI_TOK_*` flags.
    pub fn tokenize_flags(&self, text: &str, flags: i32) -> Result<Vec<i32>> {
        filled(text.len() + 8, |p, cap, _| unsafe {
            sys::pi_tokenize(self.e, text.as_ptr().cast(), text.len(), flags, p, cap)
        })
    }
    /// The text of tokens; bytes that are not UTF-8 become U+FFFD.
    pub fn detokenize(&self, ids: &[i32]) -> Result<String> {
        let bytes: Vec<u8> = filled(8 * ids.len() + 8, |p: *mut u8, cap, _| unsafe {
            sys::pi_detokenize(self.e, ids.as_ptr(), ids.len(), 0, p.cast(), cap)
        })?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
    /// A conversation (a JSON list of messages) as text.
    pub fn render(&self, messages: &str) -> Result<String> {
        let messages = c_string(messages)?;
        let bytes: Vec<u8> = filled(4096, |p: *mut u8, cap, err| unsafe {
            sys::pi_chat_render(self.e, messages.as_ptr(), ptr::null(), ptr::null(), p.cast(), cap, err)
        })?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
    /// Creates a request with the engine's default options.
    pub fn request(&self) -> Result<Request<'_>> {
        let r = unsafe { sys::pi_request_new(self.e) };
        if r.is_null() {
            return Err(Error::new(sys::PI_ENOMEM, ""));
        }
        self.n_requests.fetch_add(1, Ordering::Relaxed);
        Ok(Request { engine: self, r })
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if *self.n_requests.get_mut() == 0 {
            unsafe { sys::pi_engine_close(self.e) } // otherwise a stream was leaked, and its callback uses the engine
        }
    }
}

/// A prompt with options. It runs when [`Request::stream`] or [`Request::text`] is called.
pub struct Request<'e> {
    engine: &'e Engine,
    r: *mut sys::pi_request,
}

unsafe impl Send for Request<'_> {}

impl<'e> Request<'e> {
    /// Sets an option of the request.
    pub fn set(self, key: &str, value: impl ToString) -> Result<Self> {
        let (key, value) = (c_string(key)?, c_string(&value.to_string())?);
        checked(|err| unsafe { sys::pi_request_set(self.r, key.as_ptr(), value.as_ptr(), err) })?;
        Ok(self)
    }
    /// Sets text as the prompt.
    pub fn prompt(self, text: &str) -> Result<Self> {
        checked(|err| unsafe { sys::pi_request_prompt_text(self.r, text.as_ptr().cast(), text.len(), err) })?;
        Ok(self)
    }
    /// Sets tokens as the prompt.
    pub fn prompt_tokens(self, ids: &[i32]) -> Result<Self> {
        checked(|err| unsafe { sys::pi_request_prompt_tokens(self.r, ids.as_ptr(), ids.len(), err) })?;
        Ok(self)
    }
    /// Sets a conversation as the prompt: JSON of messages, and of tools and template options if there are any.
    pub fn chat(self, messages: &str, tools: Option<&str>, options: Option<&str>) -> Result<Self> {
        let messages = c_string(messages)?;
        let (tools, options) = (tools.map(c_string).transpose()?, options.map(c_string).transpose()?);
        let text = |s: &Option<CString>| s.as_ref().map_or(ptr::null(), |s| s.as_ptr());
        checked(|err| unsafe {
            sys::pi_request_prompt_chat(self.r, messages.as_ptr(), text(&tools), text(&options), err)
        })?;
        Ok(self)
    }
    /// Submits the request. The answer arrives piece by piece; dropping the stream cancels it.
    pub fn stream(self) -> Result<Stream<'e>> {
        let (sender, receiver) = channel();
        let sender = Box::into_raw(Box::new(sender));
        let stream = Stream { request: self, receiver, sender, n_left: 1 };
        let r = stream.request.r;
        unsafe { sys::pi_request_on_event(r, Some(on_event), sender.cast()) };
        checked(|err| unsafe { sys::pi_request_submit(r, err) })?;
        Ok(stream)
    }
    /// Submits the request and returns the text of sample 0.
    pub fn text(self) -> Result<String> {
        let mut text = String::new();
        for piece in self.stream()? {
            let piece = piece?;
            if piece.sample == 0 {
                text.push_str(&piece.text);
            }
        }
        Ok(text)
    }
}

impl Drop for Request<'_> {
    fn drop(&mut self) {
        unsafe { sys::pi_request_free(self.r) } // afterwards no callback runs
        self.engine.n_requests.fetch_sub(1, Ordering::Relaxed);
    }
}

/// New output of a request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Piece {
    /// Text of complete characters.
    pub text: String,
    /// Tokens of this piece.
    pub tokens: Vec<i32>,
    /// Log-probabilities of the tokens: option "logprobs" + 1 entries of (token, log-probability) per token.
    pub logprobs: Vec<Vec<(i32, f32)>>,
    /// The vector or the scores of an embedding request.
    pub embedding: Vec<f32>,
    /// Number of the sample, with option "n".
    pub sample: u32,
    /// `sys::PI_FINISH_*` in the last piece of a sample.
    pub finish: Option<i32>,
}

struct Message {
    piece: Piece,
    code: c_int,
    n_left: Option<u32>, // the last message of a sample: samples that still run
}

fn slice<'a, T>(p: *const T, n: usize) -> &'a [T] {
    if p.is_null() { &[] } else { unsafe { std::slice::from_raw_parts(p, n) } }
}

/// Copies an event. Runs on the dispatch thread of the library; allocation failure aborts, as everywhere in Rust.
unsafe extern "C" fn on_event(ud: *mut c_void, ev: *const sys::pi_event) {
    let (sender, ev) = (&*ud.cast::<Sender<Message>>(), &*ev);
    let done = ev.kind == sys::PI_EVENT_DONE;
    let probs = slice(ev.logprobs, ev.n_tokens * ev.n_logprobs);
    let piece = Piece {
        text: String::from_utf8_lossy(slice(ev.text.cast::<u8>(), ev.text_len)).into_owned(),
        tokens: slice(ev.tokens, ev.n_tokens).to_vec(),
        logprobs: probs.chunks(ev.n_logprobs.max(1)).map(|c| c.iter().map(|p| (p.id, p.logprob)).collect()).collect(),
        embedding: slice(ev.embedding, ev.n_embd * ev.n_embeddings).to_vec(),
        sample: ev.index,
        finish: done.then_some(ev.finish_reason),
    };
    let _ = sender.send(Message { piece, code: ev.code, n_left: done.then_some(ev.n_left) }); // the receiver lives
}

/// The pieces of an answer. An error ends the stream.
pub struct Stream<'e> {
    request: Request<'e>,
    receiver: Receiver<Message>,
    sender: *mut Sender<Message>,
    n_left: u32, // samples that have not ended
}

unsafe impl Send for Stream<'_> {}

impl Stream<'_> {
    /// Cancels the request: its last piece arrives soon, with `sys::PI_FINISH_CANCEL`.
    pub fn cancel(&self) {
        unsafe { sys::pi_request_cancel(self.request.r) }
    }
    /// The text of the failure, or "".
    fn failure(&self) -> String {
        let mut res: sys::pi_result = unsafe { std::mem::zeroed() };
        res.size = std::mem::size_of_val(&res) as u32;
        unsafe { sys::pi_request_result(self.request.r, &mut res) };
        string(res.msg.as_ptr())
    }
}

impl Iterator for Stream<'_> {
    type Item = Result<Piece>;
    fn next(&mut self) -> Option<Result<Piece>> {
        if self.n_left == 0 {
            return None;
        }
        let message = self.receiver.recv().ok()?;
        if let Some(n) = message.n_left {
            self.n_left = n;
        }
        if message.code != sys::PI_OK && message.code != sys::PI_ECANCELED {
            self.n_left = 0;
            return Some(Err(Error::new(message.code, &self.failure())));
        }
        Some(Ok(message.piece))
    }
}

impl Drop for Stream<'_> {
    fn drop(&mut self) {
        unsafe {
            sys::pi_request_free(self.request.r); // ends the callbacks, which use the sender
            self.request.r = ptr::null_mut();
            drop(Box::from_raw(self.sender));
        }
    }
}

/// A tool call of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Id of the call.
    pub id: String,
    /// Name of the function.
    pub name: String,
    /// Arguments: a JSON object.
    pub arguments: String,
}

/// Splits the answer to a conversation into thoughts, content and tool calls. Set the request's option "special".
pub struct ChatParser<'e> {
    p: *mut sys::pi_chat_parser,
    _engine: &'e Engine,
}

unsafe impl Send for ChatParser<'_> {}

impl<'e> ChatParser<'e> {
    /// Creates a parser; tools and options are those of the request.
    pub fn new(engine: &'e Engine, tools: Option<&str>, options: Option<&str>) -> Result<Self> {
        let (tools, options) = (tools.map(c_string).transpose()?, options.map(c_string).transpose()?);
        let text = |s: &Option<CString>| s.as_ref().map_or(ptr::null(), |s| s.as_ptr());
        let mut p = ptr::null_mut();
        checked(|err| unsafe { sys::pi_chat_parser_new(&mut p, engine.e, text(&tools), text(&options), err) })?;
        Ok(ChatParser { p, _engine: engine })
    }
    /// Feeds new text.
    pub fn feed(&mut self, text: &str) -> Result<()> {
        checked(|_| unsafe { sys::pi_chat_parser_feed(self.p, text.as_ptr().cast(), text.len()) }).map(|_| ())
    }
    /// Ends the answer; returns `sys::PI_FINISH_*`.
    pub fn end(&mut self, finish: i32) -> Result<i32> {
        checked(|_| unsafe { sys::pi_chat_parser_end(self.p, finish) })
    }
    /// The content so far.
    pub fn content(&self) -> String {
        self.part(sys::pi_chat_parser_content)
    }
    /// The thoughts so far.
    pub fn reasoning(&self) -> String {
        self.part(sys::pi_chat_parser_reasoning)
    }
    /// The complete calls so far.
    pub fn calls(&self) -> Vec<Call> {
        let mut out = Vec::new();
        let mut c: sys::pi_chat_call = unsafe { std::mem::zeroed() };
        c.size = std::mem::size_of_val(&c) as u32;
        while unsafe { sys::pi_chat_parser_call(self.p, out.len() as u32, &mut c) } == sys::PI_OK {
            out.push(Call { id: string(c.id), name: string(c.name), arguments: string(c.arguments) });
        }
        out
    }
    fn part(&self, f: unsafe extern "C" fn(*const sys::pi_chat_parser, *mut *const c_char) -> usize) -> String {
        let mut p = ptr::null();
        let n = unsafe { f(self.p, &mut p) };
        String::from_utf8_lossy(slice(p.cast::<u8>(), n)).into_owned()
    }
}

impl Drop for ChatParser<'_> {
    fn drop(&mut self) {
        unsafe { sys::pi_chat_parser_free(self.p) }
    }
}
