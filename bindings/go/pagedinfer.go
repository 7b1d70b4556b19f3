// Package pagedinfer runs large language models with libpagedinfer: many concurrent requests share one engine.
//
//	engine, err := pagedinfer.Open(map[string]string{"model": "gemma.gguf"})
//	defer engine.Close()
//	request, err := engine.Prompt("Once upon a time", map[string]string{"max-tokens": "64"})
//	for piece := range request.Pieces() { fmt.Print(piece.Text) }
//	err = request.Close()
//
// Options are named as in the C library; docs/OPTIONS.md lists them. All methods may be called from any goroutine,
// except Engine.Close, which comes after all requests are closed.
package pagedinfer

/*
#cgo pkg-config: pagedinfer
#include <pagedinfer.h>
#include <stdint.h>
#include <stdlib.h>

void pagedinferEvent(void *ud, pi_event *ev); // exported below

static void on_event(void *ud, const pi_event *ev) { pagedinferEvent(ud, (pi_event *) ev); }
static void listen(pi_request *r, uintptr_t handle) { pi_request_on_event(r, on_event, (void *) handle); }
*/
import "C"

import (
	"errors"
	"runtime/cgo"
	"sync"
	"unsafe"
)

// Error is a failed call: the code of the library (PI_E*) and its text, which names the cause and the remedy.
type Error struct {
	Code int
	Text string
}

func (e *Error) Error() string { return e.Text }

// Name returns the name of the code, "PI_EINVAL" for example.
func (e *Error) Name() string { return C.GoString(C.pi_err_name(C.int(e.Code))) }

// Codes of errors that callers handle.
const (
	EInval    = C.PI_EINVAL
	ENoEnt    = C.PI_ENOENT
	ETooBig   = C.PI_ETOOBIG
	EBusy     = C.PI_EBUSY
	ECanceled = C.PI_ECANCELED
)

// Reasons for the end of an answer.
const (
	FinishStop   = C.PI_FINISH_STOP
	FinishLength = C.PI_FINISH_LENGTH
	FinishCancel = C.PI_FINISH_CANCEL
)

func failure(code C.int, err *C.pi_error) error {
	if code >= 0 {
		return nil
	}
	text := C.GoString(C.pi_strerror(code))
	if err != nil && err.code == code && err.msg[0] != 0 {
		text = C.GoString(&err.msg[0])
	}
	return &Error{int(code), text}
}

// Engine is a loaded model with its cache and scheduler.
type Engine struct{ e *C.pi_engine }

// Open loads a model with these options.
func Open(options map[string]string) (*Engine, error) {
	var err C.pi_error
	o := C.pi_options_new()
	if o == nil {
		return nil, failure(C.PI_ENOMEM, nil)
	}
	defer C.pi_options_free(o)
	for key, value := range options {
		k, v := C.CString(key), C.CString(value)
		rc := C.pi_options_set(o, k, v, &err)
		C.free(unsafe.Pointer(k))
		C.free(unsafe.Pointer(v))
		if rc != C.PI_OK {
			return nil, failure(rc, &err)
		}
	}
	var e *C.pi_engine
	if rc := C.pi_engine_open(&e, o, &err); rc != C.PI_OK {
		return nil, failure(rc, &err)
	}
	return &Engine{e}, nil
}

// Close frees the engine. Close its requests before.
func (e *Engine) Close() {
	C.pi_engine_close(e.e)
	e.e = nil
}

// Piece is new output of a request.
type Piece struct {
	Text   string
	Tokens []int32
	Sample int // number of the sample, with option "n"
	Finish int // Finish* in the last piece of a sample, otherwise 0
}

// Request is a prompt and its answers.
type Request struct {
	r      *C.pi_request
	handle cgo.Handle
	pieces chan Piece
	mu     sync.Mutex
	queue  []Piece // not yet sent to pieces, so that the engine's callback never waits
	wake   *sync.Cond
	ended  bool
	closed chan struct{}
	done   chan struct{} // the goroutine of send has ended
	code   C.int         // of the first sample that failed
}

// Prompt submits a text.
func (e *Engine) Prompt(text string, options map[string]string) (*Request, error) {
	return e.submit(options, func(r *C.pi_request, err *C.pi_error) C.int {
		t := C.CString(text)
		defer C.free(unsafe.Pointer(t))
		return C.pi_request_prompt_text(r, t, C.size_t(len(text)), err)
	})
}

// Chat submits a conversation: a JSON list of messages in OpenAI's format.
func (e *Engine) Chat(messages string, options map[string]string) (*Request, error) {
	return e.submit(options, func(r *C.pi_request, err *C.pi_error) C.int {
		m := C.CString(messages)
		defer C.free(unsafe.Pointer(m))
		return C.pi_request_prompt_chat(r, m, nil, nil, err)
	})
}

func (e *Engine) submit(options map[string]string, prompt func(*C.pi_request, *C.pi_error) C.int) (*Request, error) {
	if e.e == nil {
		return nil, errors.New("the engine is closed")
	}
	var err C.pi_error
	r := &Request{r: C.pi_request_new(e.e), pieces: make(chan Piece), closed: make(chan struct{}), done: make(chan struct{})}
	if r.r == nil {
		return nil, failure(C.PI_ENOMEM, nil)
	}
	r.wake = sync.NewCond(&r.mu)
	rc := C.int(C.PI_OK)
	for key, value := range options {
		k, v := C.CString(key), C.CString(value)
		if rc == C.PI_OK {
			rc = C.pi_request_set(r.r, k, v, &err)
		}
		C.free(unsafe.Pointer(k))
		C.free(unsafe.Pointer(v))
	}
	if rc == C.PI_OK {
		rc = prompt(r.r, &err)
	}
	r.handle = cgo.NewHandle(r)
	C.listen(r.r, C.uintptr_t(r.handle))
	if rc == C.PI_OK {
		rc = C.pi_request_submit(r.r, &err)
	}
	if rc != C.PI_OK {
		C.pi_request_free(r.r)
		r.handle.Delete()
		return nil, failure(rc, &err)
	}
	go r.send()
	return r, nil
}

//export pagedinferEvent
func pagedinferEvent(ud unsafe.Pointer, ev *C.pi_event) {
	r := cgo.Handle(uintptr(ud)).Value().(*Request)
	p := Piece{Text: C.GoStringN(ev.text, C.int(ev.text_len)), Sample: int(ev.index)}
	for _, id := range unsafe.Slice(ev.tokens, ev.n_tokens) {
		p.Tokens = append(p.Tokens, int32(id))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if ev.kind == C.PI_EVENT_DONE {
		p.Finish = int(ev.finish_reason)
		if r.code == C.PI_OK {
			r.code = ev.code
		}
		r.ended = ev.n_left == 0
	}
	r.queue = append(r.queue, p)
	r.wake.Signal()
}

// send moves pieces from the queue to the channel, which it closes at the end.
func (r *Request) send() {
	defer close(r.done)
	defer close(r.pieces)
	for {
		r.mu.Lock()
		for len(r.queue) == 0 && !r.ended {
			r.wake.Wait()
		}
		batch := r.queue
		r.queue = nil
		r.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		for _, p := range batch {
			select {
			case r.pieces <- p:
			case <-r.closed:
				return
			}
		}
	}
}

// Pieces returns the output in order; the channel is closed after the last piece.
func (r *Request) Pieces() <-chan Piece { return r.pieces }

// Cancel ends the request soon: its last piece has FinishCancel.
func (r *Request) Cancel() { C.pi_request_cancel(r.r) }

// Text returns the text of sample 0, and closes the request.
func (r *Request) Text() (string, error) {
	text := ""
	for p := range r.Pieces() {
		if p.Sample == 0 {
			text += p.Text
		}
	}
	return text, r.Close()
}

// Close cancels a running request and frees it. Returns the error that ended the request. Call it once.
func (r *Request) Close() error {
	var res C.pi_result
	res.size = C.uint32_t(unsafe.Sizeof(res))
	C.pi_request_result(r.r, &res)
	C.pi_request_free(r.r) // afterwards no callback runs
	r.handle.Delete()
	close(r.closed)
	r.mu.Lock()
	r.ended = true
	r.wake.Signal()
	r.mu.Unlock()
	<-r.done
	if r.code == C.PI_OK {
		return nil
	}
	text := C.GoString(&res.msg[0])
	if text == "" {
		text = C.GoString(C.pi_strerror(r.code))
	}
	return &Error{int(r.code), text}
}
